"""Lengths of time in the unit that Delta and Dagster stamp with: milliseconds."""

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
