"""The commands of the terminal, one per file: options, output and JSON."""
