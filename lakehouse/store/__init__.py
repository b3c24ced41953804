"""Stores of files, on disk or S3: list, read, put, put if absent, delete."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lakehouse.base.paths import split_bucket
from lakehouse.store.disk import DiskStore, MountedStore, real_address
from lakehouse.store.interface import (
    LOCAL,
    ArchivedError,
    FairOrder,
    Store,
    StoredFile,
    TimeBudget,
    at_once,
)
from lakehouse.store.s3 import S3Store

__all__ = [
    "LOCAL",
    "ArchivedError",
    "DiskStore",
    "FairOrder",
    "MountedStore",
    "S3Store",
    "Store",
    "StoredFile",
    "TimeBudget",
    "at_once",
    "real_address",
    "store_at",
]


def store_at(address: str, make_client: Callable[..., Any] | None = None) -> Store:
    """The store whose root is `address`, an absolute folder or `s3://bucket/folder`.

    Nothing is created or requested yet. `make_client` creates the client of an S3 store.
    """
    if not address.startswith("s3://"):
        return DiskStore(Path(address))
    return S3Store(*split_bucket(address), make_client)
