"""A Delta table by its log: snapshot, commits, partition values, paths, protocol."""
