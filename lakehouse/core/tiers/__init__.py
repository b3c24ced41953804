"""Storage classes: which objects may move to a cheaper class, and which lifecycle rules do harm."""
