"""Micro sweeps, really run, once for all tests."""

from support.tiny_scale import micro  # noqa: F401
