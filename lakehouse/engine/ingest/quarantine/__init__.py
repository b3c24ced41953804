"""Records and files that did not become rows: set aside with the reason, looked at, read again, settled."""
