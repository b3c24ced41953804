"""The terminal's front door: `lakehouse …`."""

from lakehouse.cli.front import main

__all__ = ["main"]
