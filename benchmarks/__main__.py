"""Runs the benchmarks that need nothing but this machine."""

import sys

from benchmarks import big_log, four_weeks, random_tables

# In turn, all of them; 1 if one of them finds something wrong.
sys.exit(max([benchmark() for benchmark in (big_log.main, random_tables.main, four_weeks.main)]))
