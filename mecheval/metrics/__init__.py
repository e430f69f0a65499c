"""Measurements of a model: read-outs of its logits, each with an interval."""
