"""Decides. Standard library only: no clock, no file, no environment, no logging."""
