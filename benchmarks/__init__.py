"""Speed and memory as ratios: to the plain form, to packaged rivals, to the machine's limit. `suite.py` runs it all."""
