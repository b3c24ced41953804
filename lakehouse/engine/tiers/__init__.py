"""Storage classes on S3: reads lifecycle rules and tags, and tags the dead files of a plan."""
