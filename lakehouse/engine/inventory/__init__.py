"""Inventories of a lake's storage: scans it, reads reports of AWS, and keeps both in a table."""
