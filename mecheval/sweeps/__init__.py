"""Sweeps: run many experiments on this machine, a Ray cluster or Slurm; the rows are identical."""
