"""Commits actions to a table without Spark, as the version after the newest one, or not at all."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import Transient
from lakehouse.delta.snapshot import Snapshot
from lakehouse.lake.lake import Lake
from lakehouse.store import MountedStore, S3Store, Store, store_at
from lakehouse.store.s3 import TAKEN

Actions = list[dict[str, Any]]
Location = tuple[Store, str]
# After each version that another writer created first, the log is read again.
VERSIONS_TRIED = 50


@contextmanager
def table_location(lake: Lake, key: str) -> Iterator[Location]:
    """A table's store and prefix, through which its log may be written, for a block.

    For a mounted table this is the mounted store, because a `MountedStore` refuses writes to tables
    of other programs. After the block, the object that tests S3's conditional writes in such a
    table's folder is deleted. The lake's own stays, because each process uses it.
    """
    store = lake.store
    folder = key
    if isinstance(store, MountedStore):
        is_mounted = key in store.mounts
        store, folder = store.place_of(key)
        if is_mounted and isinstance(store, S3Store):
            # The credentials may only allow writes below the table's folder, so that folder becomes
            # the store's own prefix.
            store = store_at(f"s3://{store.bucket}/{folder}")
            folder = ""
    try:
        yield store, f"{folder}/" if folder else ""
    finally:
        if key in lake.elsewhere and isinstance(store, S3Store):
            store.delete_each([TAKEN])


def commit_info(
    operation: str, snapshot_version: int, metadata: Mapping[str, Any]
) -> dict[str, Any]:
    """The `commitInfo` action of a commit of ours; `metadata` becomes its userMetadata."""
    return {
        "commitInfo": {
            "timestamp": now_ms(),
            "operation": operation,
            "operationParameters": {},
            "readVersion": snapshot_version,
            "isolationLevel": "Serializable",
            "isBlindAppend": False,
            "engineInfo": "lakehouse",
            "userMetadata": json.dumps(metadata, separators=(",", ":")),
        }
    }


def create_version(location: Location, version: int, actions: Iterable[Mapping[str, Any]]) -> bool:
    """Creates a version of a table unless it exists; returns whether this call created it."""
    store, prefix = location
    return store.put_if_absent(f"{prefix}_delta_log/{version:020}.json", encoded(actions))


def encoded(actions: Iterable[Mapping[str, Any]]) -> bytes:
    """Actions as a file of the log: a line of JSON for each."""
    return "\n".join(json.dumps(action, separators=(",", ":")) for action in actions).encode()


def commit_after_newest(
    lake: Lake,
    snapshot: Snapshot,
    location: Location,
    actions: Actions,
    check: Callable[[Snapshot], None],
) -> int | None:
    """Commits after the newest version; returns the created version.

    `None` if other writers always committed first. The commit's userMetadata must be unique: by it,
    the commit is recognized if the storage's answer was lost. `check` raises if the actions do not
    apply to a newer snapshot.

    Raises:
        Transient: the next version exists, but the log does not show it.
    """
    [mark] = [action["commitInfo"]["userMetadata"] for action in actions if "commitInfo" in action]
    version = snapshot.version
    for _ in range(VERSIONS_TRIED):
        if create_version(location, version + 1, actions):
            return version + 1
        newest = lake.facts(snapshot.table)
        if newest is None or newest.snapshot.version <= version:
            raise Transient(
                f"commit to {snapshot.table}: version {version + 1} exists, but the log does not"
                " show it; try again"
            )
        for commit in newest.history.commits:
            if commit.version > snapshot.version and commit.user_metadata == mark:
                return commit.version
        check(newest.snapshot)
        version = newest.snapshot.version
    return None
