"""`python -m benchmarks` measures and shows the ratios."""

import sys

from benchmarks.cli import main

sys.exit(main())
