"""Durations in milliseconds, the unit of Delta's and Dagster's timestamps."""

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
