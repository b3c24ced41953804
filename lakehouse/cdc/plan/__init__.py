"""Decodes the events of Debezium."""
