"""Compiled ops, for one thread; imported only when one runs."""

from mecheval.core.numba_cache import ensure_cache

ensure_cache()  # before a kernel is defined, which fails without a place for its cache
