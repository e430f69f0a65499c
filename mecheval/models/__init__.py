"""Models with sites: mixers, the language model around them and third-party models."""
