"""Decodes change data as its source sent it."""
