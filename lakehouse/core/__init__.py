"""All decisions. Uses the standard library only: no clock, file, environment or logging."""
