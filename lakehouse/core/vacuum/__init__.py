"""The files of a table that are to be deleted, by which mode and at what price, and why."""
