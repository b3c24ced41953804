"""Keeps it running: Java, jars, the Connect server, processes, and everything in the foreground. Imports core only."""
