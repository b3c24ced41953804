"""Files, wherever the lake lies: list, read, put, put if absent, delete; on disk, on S3."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lakehouse.core.settings import Settings
from lakehouse.engine.store.disk import DiskStore
from lakehouse.engine.store.interface import LOCAL, Store, StoredFile
from lakehouse.engine.store.mounts import Mount, MountedStore, real_address
from lakehouse.engine.store.s3 import S3Store

__all__ = ["LOCAL", "DiskStore", "Mount", "MountedStore", "S3Store", "Store", "StoredFile", "open_store", "real_address"]


def open_store(settings: Settings, make_client: Callable[[], Any] | None = None) -> Store:
    """The store at the lake's root; nothing is created and nothing is asked yet. `make_client` gives the client of a lake on S3."""
    if not settings.on_s3:
        return DiskStore(Path(settings.root))
    return S3Store(*settings.bucket_and_prefix, make_client=make_client)
