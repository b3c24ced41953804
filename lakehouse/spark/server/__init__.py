"""Java, jars, and the Spark Connect server."""
