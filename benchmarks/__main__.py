"""Runs the benchmarks that need nothing but this machine."""

import sys

from benchmarks import four_weeks

sys.exit(four_weeks.main())
