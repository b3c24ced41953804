"""Change data of AWS DMS and Debezium, applied to tables in whatever order it arrives."""
