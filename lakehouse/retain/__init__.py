"""How long rows stay: archives of old partitions, and row TTLs. Nothing else needs this folder."""
