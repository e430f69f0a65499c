"""Drawing, compiled. Imported only when documents are drawn: numba takes longer to load than `--help` may take."""
