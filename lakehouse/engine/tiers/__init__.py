"""Storage classes on S3: lifecycle rules, tags of dead files, and files in colder classes."""
