"""Loads landed files and updates derived tables; each commit records what it has consumed."""
