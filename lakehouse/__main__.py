"""Runs the command line for `python -m lakehouse`, the same as the command `lakehouse`."""

from lakehouse.cli import main

main()
