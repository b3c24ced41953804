"""Records of what the Delta log does not keep, as small objects below `_lakehouse/`."""
