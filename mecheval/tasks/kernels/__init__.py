"""Compiled drawing; imported only to draw documents, since numba takes long to import."""

from mecheval.core.numba_cache import ensure_cache

ensure_cache()  # before a kernel is defined, which fails without a place for its cache
