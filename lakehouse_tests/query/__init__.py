"""Reading by SQL."""
