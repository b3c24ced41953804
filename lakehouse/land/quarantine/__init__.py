"""Records and files that could not be loaded: quarantined, shown, retried and dropped."""
