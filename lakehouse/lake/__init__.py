"""One lake: its store, its tables, its journal and leases, and how commits to it are made."""
