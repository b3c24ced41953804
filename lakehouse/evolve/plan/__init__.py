"""Plans how a table follows a changed declaration."""
