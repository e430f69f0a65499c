"""Displays for a terminal: progress, documents, tables, grids and sweeps."""
