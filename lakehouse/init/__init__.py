"""`lakehouse init`: a project around files that already exist."""
