"""Many runs: what is not done yet, by processes of this machine, a Ray cluster or Slurm. The same rows from all."""
