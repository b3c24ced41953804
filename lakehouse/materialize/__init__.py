"""Writes a table as its asset: from landed files, or from other tables."""
