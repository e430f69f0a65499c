"""Compiled ops, for one thread; imported only when one runs."""
