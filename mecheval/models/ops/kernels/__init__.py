"""Ops, compiled. Imported only when one runs."""
