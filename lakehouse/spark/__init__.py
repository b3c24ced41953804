"""Spark sessions, their settings, and the statements that change tables."""
