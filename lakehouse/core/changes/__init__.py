"""Change data: the sources it comes from, and what a change does."""
