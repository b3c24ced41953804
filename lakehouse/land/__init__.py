"""Files become rows: lists, chooses, reads and judges landed files, and loads each exactly once."""
