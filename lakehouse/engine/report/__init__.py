"""Reads the facts of the morning page (`lakehouse report`), and keeps the newest pages."""
