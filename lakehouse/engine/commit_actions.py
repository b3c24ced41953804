"""Commits actions to a table without Spark, as the version after the newest one, or not at all."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from lakehouse.core.delta.snapshot import Snapshot, TableFacts
from lakehouse.core.errors import Transient
from lakehouse.engine.clock import now_ms
from lakehouse.engine.lake import Lake
from lakehouse.engine.store import MountedStore, S3Store, Store, store_at

Actions = list[dict[str, Any]]
# After each version that another writer created first, the log is read again.
_VERSIONS_TRIED = 50


def table_location(lake: Lake, key: str) -> tuple[Store, str]:
    """A table's store and prefix, through which its log may be written.

    For a mounted table this is the mounted store, because a `MountedStore` refuses writes to tables
    of other programs.
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
    return store, f"{folder}/" if folder else ""


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


def create_version(
    lake: Lake, key: str, version: int, actions: Iterable[Mapping[str, Any]]
) -> bool:
    """Creates a version of a table unless it exists; returns whether this call created it."""
    store, prefix = table_location(lake, key)
    return store.put_if_absent(f"{prefix}_delta_log/{version:020}.json", encoded(actions))


def encoded(actions: Iterable[Mapping[str, Any]]) -> bytes:
    """Actions as a file of the log: a line of JSON for each."""
    return "\n".join(json.dumps(action, separators=(",", ":")) for action in actions).encode()


def commit_after_newest(
    lake: Lake,
    facts: TableFacts,
    actions: Actions,
    *,
    mark: str,
    check: Callable[[Snapshot], None],
) -> int:
    """Commits after the newest version; returns the created version.

    `mark` is a unique text in the commit's userMetadata, by which the commit is recognized if the
    storage's answer was lost. `check` raises if the actions do not apply to a newer snapshot.

    Raises:
        Transient: other writers always committed first, or the log does not show their commit.
    """
    key = facts.snapshot.table
    version = facts.snapshot.version
    for _ in range(_VERSIONS_TRIED):
        if create_version(lake, key, version + 1, actions):
            return version + 1
        newest = lake.facts(key)
        if newest is None or newest.snapshot.version <= version:
            raise Transient(
                f"commit to {key}: version {version + 1} exists, but the log does not show it. Try"
                " again"
            )
        for commit in newest.history.marked(mark):
            return commit.version
        check(newest.snapshot)
        version = newest.snapshot.version
    raise Transient(f"commit to {key}: other writers committed first {_VERSIONS_TRIED} times")
