"""The report of a lake (`lakehouse report`) as one HTML page."""
