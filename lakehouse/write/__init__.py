"""Commits rows and table properties to declared tables."""
