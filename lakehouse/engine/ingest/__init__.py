"""Loads landed files and follows other tables: each run in one commit that says what it holds."""
