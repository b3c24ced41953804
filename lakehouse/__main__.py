"""Runs the command line as `python -m lakehouse`, for example if `lakehouse` is not on the PATH."""

from lakehouse.cli import main

main()
