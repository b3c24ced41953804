"""Fixtures of the terminal and of Dagster, for the doors of this capability."""

from lakehouse_tests.cli.conftest import terminal
from lakehouse_tests.defs.conftest import instance

__all__ = ["instance", "terminal"]
