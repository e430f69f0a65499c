"""`python -m benchmarks`: measure, show and keep the ratios."""

import sys

from benchmarks.cli import main

sys.exit(main())
