"""Checks of a configuration, from this machine to a commit by Spark."""
