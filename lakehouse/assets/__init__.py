"""What all Dagster assets share: keys, metadata, resources, runs and the instance."""
