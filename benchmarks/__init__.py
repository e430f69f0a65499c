"""Benchmarks of the speed and memory of mecheval, as ratios measured in one run."""
