"""Java, jars, the Spark Connect server, and the processes of `make run`. Imports only core."""
