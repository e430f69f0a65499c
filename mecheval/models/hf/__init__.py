"""Causal language models of `transformers`, loaded or built small, with sites."""
