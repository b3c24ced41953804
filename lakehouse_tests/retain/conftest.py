"""Fixtures of the terminal and of Dagster, for the doors of this capability."""

from lakehouse_tests.cli.conftest import terminal
from lakehouse_tests.defs.conftest import instance, one_set_of_migrations

__all__ = ["instance", "one_set_of_migrations", "terminal"]
