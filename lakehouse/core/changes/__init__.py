"""Change data: decodes the events of Debezium."""
