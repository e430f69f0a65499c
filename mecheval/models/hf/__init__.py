"""Models of the transformers library, with sites."""
