"""Spark sessions, their settings, and every SQL statement."""
