"""Health checks, metrics and costs."""
