"""Files that only their owner may read: tokens, and whatever is told to Spark."""

import os
from pathlib import Path


def write_private(path: Path, text: str) -> None:
    """Written whole or not at all, readable by the owner only from its first byte."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    fresh.replace(path)
