"""Speed and memory as ratios, each measured in one run."""
