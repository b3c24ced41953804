"""Reads the facts of the morning page, and keeps the newest pages below the lake."""
