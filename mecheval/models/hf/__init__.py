"""Models of transformers: loading, sites, and recall in their own tokens."""
