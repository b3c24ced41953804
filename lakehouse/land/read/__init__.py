"""Small files, which this process reads and stages."""
