"""Compiled drawing; imported only to draw documents, since numba takes long to import."""
