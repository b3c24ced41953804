"""Storage classes: which objects may lie in a cheaper one, and which lifecycle rules do harm."""
