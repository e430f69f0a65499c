"""Speed and memory of mecheval, as ratios measured in one run."""
