"""Files, wherever the lake lies: list, read, put, put if absent, delete; on disk, on S3."""

from pathlib import Path

from lakehouse.core.settings import Settings
from lakehouse.engine.store.contract import LOCAL, Store, StoredFile
from lakehouse.engine.store.disk import DiskStore
from lakehouse.engine.store.s3 import S3Store

__all__ = ["LOCAL", "DiskStore", "S3Store", "Store", "StoredFile", "open_store"]


def open_store(settings: Settings) -> Store:
    """The store at the lake's root; nothing is created and nothing is asked yet."""
    if not settings.on_s3:
        return DiskStore(Path(settings.root))
    bucket, _, prefix = settings.root.removeprefix("s3://").partition("/")
    return S3Store(bucket, prefix)
