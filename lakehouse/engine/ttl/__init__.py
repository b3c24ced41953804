"""Deletes rows that are past their time."""
