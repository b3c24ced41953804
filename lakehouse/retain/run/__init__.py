"""Carries out archives, restores and TTLs."""
