"""Decides which rows of a table are past their time."""
