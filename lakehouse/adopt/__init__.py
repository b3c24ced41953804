"""Tables that other programs write, and the upkeep of any Dagster project's tables."""
