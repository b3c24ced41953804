"""Makes all decisions. Uses only the standard library: no clock, file, environment or logging."""
