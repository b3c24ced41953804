"""A lakehouse that looks after itself: Delta tables as Dagster assets, each with its own upkeep."""
