"""`python -m lakehouse`: the terminal, where the `lakehouse` command is not on the path."""

from lakehouse.cli import main

main()
