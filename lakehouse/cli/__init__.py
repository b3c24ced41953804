"""The command `lakehouse`."""

from lakehouse.cli.app import main

__all__ = ["main"]
