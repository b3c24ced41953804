"""A Delta table as its log describes it: snapshot, commits, partition values, protocol."""
