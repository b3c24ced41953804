"""Large files, which Spark reads itself: their records never pass through this process."""
