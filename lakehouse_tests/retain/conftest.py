"""Fixtures of the terminal, for the commands of this capability."""

from lakehouse_tests.cli.conftest import terminal

__all__ = ["terminal"]
