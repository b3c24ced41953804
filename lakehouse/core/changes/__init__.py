"""Change data: the sources it comes from, one change as a record, and the state and the history that changes add up to."""
