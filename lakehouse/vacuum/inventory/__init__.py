"""Inventories of a lake's storage: scans, reports of AWS, and the table that keeps both."""
