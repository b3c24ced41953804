"""Discovers landed files from listings and queue messages."""
