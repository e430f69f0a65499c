"""Experiments and their runs: train, measure, keep, resume and open again."""
