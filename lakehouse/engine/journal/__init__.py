"""Records that the Delta log cannot hold, as small objects below `_lakehouse/`."""
