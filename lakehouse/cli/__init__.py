"""The terminal's front door: `lakehouse …`."""

from lakehouse.cli.app import main

__all__ = ["main"]
