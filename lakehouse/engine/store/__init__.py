"""Files, wherever the lake lies: list, read, put, put if absent, delete; on disk, on S3."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lakehouse.core.delta.paths import split_bucket
from lakehouse.engine.store.disk import DiskStore
from lakehouse.engine.store.interface import LOCAL, Store, StoredFile
from lakehouse.engine.store.mounts import Mount, MountedStore, real_address
from lakehouse.engine.store.s3 import S3Store

__all__ = [
    "LOCAL",
    "DiskStore",
    "Mount",
    "MountedStore",
    "S3Store",
    "Store",
    "StoredFile",
    "real_address",
    "store_at",
]


def store_at(address: str, make_client: Callable[[], Any] | None = None) -> Store:
    """The store whose root is `address`, an absolute folder or `s3://bucket/folder`; nothing is created and nothing is asked yet.

    `make_client` gives the client of one on S3.
    """
    return (
        S3Store(*split_bucket(address), make_client)
        if address.startswith("s3://")
        else DiskStore(Path(address))
    )
