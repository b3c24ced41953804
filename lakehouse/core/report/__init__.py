"""Decides what the morning page shows, and in which order."""
