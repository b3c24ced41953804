"""Which files of a table are to be deleted, by which mode and at what price, and why."""
