"""Stores of files, on disk or S3: list, read, put, put if absent, delete."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from lakehouse.base.paths import split_bucket
from lakehouse.store.disk import DiskStore, Mount, MountedStore, real_address
from lakehouse.store.interface import LOCAL, FairOrder, Store, StoredFile, TimeBudget
from lakehouse.store.s3 import S3Store

__all__ = [
    "LOCAL",
    "DiskStore",
    "FairOrder",
    "Mount",
    "MountedStore",
    "S3Store",
    "Store",
    "StoredFile",
    "TimeBudget",
    "bounded",
    "real_address",
    "store_at",
]


def bounded(store: Store, budget: TimeBudget) -> Store:
    """The same store, with its S3 requests limited to the time of a sensor's tick.

    Requests to a disk are not limited.
    """
    if isinstance(store, MountedStore):
        bound = cache(lambda each: bounded(each, budget))  # several mounts may share a store
        mounts = {
            key: replace(mount, store=bound(mount.store)) for key, mount in store.mounts.items()
        }
        return MountedStore(bound(store.base), mounts)
    return store.within(budget) if isinstance(store, S3Store) else store


def store_at(address: str, make_client: Callable[..., Any] | None = None) -> Store:
    """The store whose root is `address`, an absolute folder or `s3://bucket/folder`.

    Nothing is created or requested yet. `make_client` creates the client of an S3 store.
    """
    if not address.startswith("s3://"):
        return DiskStore(Path(address))
    return S3Store(*split_bucket(address), make_client)
