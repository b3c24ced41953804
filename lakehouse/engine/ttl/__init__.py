"""Deletes the expired rows of tables."""
