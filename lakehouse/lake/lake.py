"""A lake: its settings, its store and the addresses of its tables.

Below `_lakehouse/`, the lake keeps small objects of its own, as JSON:

- Batch manifests and segments: `_lakehouse/ingest/` (`land/ledger.py`).
- Leases on tables: `_lakehouse/locks/` (`lake/lease.py`).
- Unverified commits of compactions: `_lakehouse/unverified/` (`compact/verify.py`).
- Records of `maintain` calls: `_lakehouse/maintained/` (`lake/declared_tables.py`).
- The newest report page: `_lakehouse/reports/report.html` (`report/run.py`).

What has ended, and what the lake notes about tables, are Delta tables: `_lakehouse/operations` and
`_lakehouse/records` (`lake/state_tables.py`).
"""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakehouse.base.errors import Broken, Refused
from lakehouse.base.paths import bare_uri, split_bucket
from lakehouse.base.settings import Settings
from lakehouse.declare.table import Table
from lakehouse.declare.write_modes import Adopted
from lakehouse.delta.log import TableFacts, read_facts
from lakehouse.delta.snapshot import log_version
from lakehouse.store import (
    DiskStore,
    Mount,
    MountedStore,
    Store,
    StoredFile,
    TimeBudget,
    bounded,
    real_address,
    store_at,
)
from lakehouse.store.s3 import s3_place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Lake:
    """A lake's settings, and the store at the lake's root. Names in the store begin at the root.

    `elsewhere` maps the keys of tables outside the root to their addresses, as Spark spells them
    (`s3a://…`). In the store, names of their files begin with the table's key, too.
    """

    settings: Settings
    store: Store
    elsewhere: Mapping[str, str] = field(default_factory=dict[str, str])

    def within(self, budget: TimeBudget) -> "Lake":
        """The same lake. All its requests share the time budget of one sensor tick."""
        return replace(self, store=bounded(self.store, budget))

    def table_uri(self, key: str) -> str:
        """The address of a table, as Spark spells it."""
        return self.elsewhere.get(key) or self.settings.table_uri(key)

    def on_s3(self, key: str) -> bool:
        """Whether a table is on S3."""
        return self.table_uri(key).startswith("s3")

    def clock_ms(self, key: str) -> int | None:
        """The current time of the bucket of a table outside the lake.

        `None` for a table in the lake or on a disk. For these, the modification time of a new file
        in the lake shows the storage's time (`check_clock`).
        """
        place = s3_place(self.store, key) if key in self.elsewhere else None
        return None if place is None else place[0].clock_ms()

    def holds_files(self, key: str) -> bool:
        """Whether the lake's root has files below `key`, even if the table `key` is elsewhere."""
        root_store = self.store.base if isinstance(self.store, MountedStore) else self.store
        return next(iter(root_store.walk(key)), None) is not None

    def storage_is_there(self, key: str) -> bool:
        """Whether the storage of a table outside the lake contains anything.

        On a disk, this looks into the table's folder or, if the folder does not exist, into its
        parent folder. In a bucket, it looks below the parent folder. If the result is false, a disk
        may not be mounted.
        """
        assert isinstance(self.store, MountedStore)
        mount = self.store.mounts[key]
        if not isinstance(mount.store, DiskStore):
            parent = mount.folder.rpartition("/")[0]
            return next(iter(mount.store.walk(parent)), None) is not None
        folder = Path(self.elsewhere[key])
        try:
            if not folder.exists():
                folder = folder.parent
            return any(folder.iterdir())
        except OSError:
            return False

    def facts(self, key: str, *, version: int | None = None) -> TableFacts | None:
        """The facts in a table's log, at the newest version or at `version`.

        `None` if there is no table.
        """
        try:
            return read_facts(self.store, key, uri=self.table_uri(key), version=version)
        except (Broken, Refused) as error:
            if key not in self.elsewhere:
                raise
            raise type(error)(
                f"{error} ({key} is {self.elsewhere[key].replace('s3a://', 's3://', 1)})"
            ) from error

    def has_moved_on(self, key: str, newest: StoredFile | None) -> bool:
        """Whether a log has a newer version than its file `newest`, or that file has changed.

        If `newest` is `None`: whether the log has version 0.
        """
        if newest is not None and self.changed(key, newest):
            return True
        return self.has_version(key, 0 if newest is None else log_version(newest.name) + 1)

    def changed(self, key: str, known: StoredFile) -> str:
        """How a log file has changed since it was listed; an empty string if unchanged."""
        # Some S3 servers round times to whole seconds, but only in listings or in HEAD requests.
        times_apart_ms = 1_000 if self.on_s3(key) else 0
        current = self.store.stat(known.name)
        if current is None:
            return "is gone"
        size_bytes = current.size_bytes
        difference_ms = abs(current.modified_ms - known.modified_ms)
        if size_bytes != known.size_bytes or difference_ms > times_apart_ms:
            return f"has {size_bytes} bytes instead of {known.size_bytes}, or was written again"
        return ""

    def has_version(self, key: str, version: int) -> bool:
        """Whether the log has the commit of a version."""
        return self.store.stat(f"{key}/_delta_log/{version:020}.json") is not None


def open_lake(
    settings: Settings,
    make_client: Callable[..., Any] | None = None,
    *,
    tables: Iterable[Table] = (),
) -> Lake:
    """The lake that the settings name. Creates nothing, and sends no request to S3 yet.

    `make_client` is passed on to `store_at`. Each adopted table in `tables` is mounted into the
    lake's store at its key, unless its address already is `<root>/<key>`.
    """
    store = store_at(settings.root, make_client)
    adopted = {table.key: table.write.uri for table in tables if isinstance(table.write, Adopted)}
    elsewhere = {
        key: uri
        for key, uri in adopted.items()
        if real_address(uri) != real_address(f"{settings.root}/{key}")
    }
    if not elsewhere:
        return Lake(settings=settings, store=store)
    bucket_of = cache(lambda bucket: store_at(f"s3://{bucket}", make_client))
    mounts = dict[str, Mount]()
    for key, uri in elsewhere.items():
        if uri.startswith("s3://"):
            bucket, folder = split_bucket(uri)
            mounts[key] = Mount(store=bucket_of(bucket), folder=folder)
        else:
            mounts[key] = Mount(store=store_at(uri))
    uris = {key: uri.replace("s3://", "s3a://", 1) for key, uri in elsewhere.items()}
    return Lake(settings=settings, store=MountedStore(store, mounts), elsewhere=uris)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSession:
    """A table, the lake that holds it, and the Spark session that reads and writes it."""

    lake: Lake
    spark: "SparkSession"
    table: Table

    @property
    def key(self) -> str:
        """The table's key, for example `bronze/flight_events`."""
        return self.table.key


class PathResolver:
    """Maps a decoded URI to the name of its object, relative to the lake.

    Each folder is resolved once. A path counts as outside the lake if only another machine or the
    kernel (a bind mount) could resolve it. `TableFiles.unplaced` covers such paths.
    """

    def __init__(self, lake: Lake) -> None:
        self._names = dict[str, str]()
        for name, root in {"": lake.settings.spark_root, **lake.elsewhere}.items():
            self._names[bare_uri(real_address(root))] = name
        self._real_folders: dict[str, str] = {}

    def __call__(self, uri: str) -> str | None:
        """The object's name in the lake; `None` if the object seems to be outside the lake.

        For a table outside the lake's root, names begin with the table's key, as in the lake's
        store.
        """
        bare = bare_uri(uri)
        if not bare.startswith("/") or "\0" in bare:
            return self._name_of(bare)
        folder, _, last = bare.rpartition("/")
        if folder not in self._real_folders:
            self._real_folders[folder] = os.path.realpath(folder or "/")
        path = f"{self._real_folders[folder]}/{last}"
        if os.path.islink(path):
            path = os.path.realpath(path)
        return self._name_of(path)

    def _name_of(self, address: str) -> str | None:
        """The name relative to the deepest root above the address, because roots may be nested."""
        bare = bare_uri(address)
        root = bare
        while root not in self._names:
            root, slash, _ = root.rpartition("/")
            if not slash:
                return None
        below = bare[len(root) + 1 :]
        return "/".join(part for part in (self._names[root], below) if part) or None


def landing_prefixes(lake: Lake, declared: Iterable[Table]) -> tuple[str, ...]:
    """The landing prefixes of declared tables, both as declared and with resolved links."""
    resolve = PathResolver(lake)
    prefixes = {table.source.prefix for table in declared if table.source is not None}
    names = [resolve(f"{lake.settings.spark_root}/{prefix}") for prefix in prefixes]
    resolved = {f"{name}/" for name in names if name}
    return tuple(sorted(prefixes | resolved))
