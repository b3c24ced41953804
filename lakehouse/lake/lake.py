"""A lake: its settings, its store and the addresses of its tables."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakehouse.base.errors import Broken, Refused
from lakehouse.base.paths import split_bucket
from lakehouse.base.settings import Settings
from lakehouse.declare.adopted import Adopted
from lakehouse.declare.table import Table
from lakehouse.delta.log import TableFacts, read_facts
from lakehouse.delta.snapshot import LogFile
from lakehouse.store import (
    LOCAL,
    DiskStore,
    Mount,
    MountedStore,
    Store,
    TimeBudget,
    bounded,
    real_address,
    store_at,
)


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
        mount = self.store.mounts.get(key) if isinstance(self.store, MountedStore) else None
        if mount is None or mount.store.bucket == LOCAL:
            return None
        from lakehouse.store import S3Store

        return mount.store.clock_ms() if isinstance(mount.store, S3Store) else None

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

    def has_moved_on(self, key: str, newest: LogFile | None) -> bool:
        """Whether a log has a newer version than its file `newest`, or that file has changed.

        If `newest` is `None`: whether the log has version 0.
        """
        if newest is not None and self.changed(key, newest):
            return True
        return self.has_version(key, 0 if newest is None else newest.version + 1)

    def changed(self, key: str, known: LogFile) -> str:
        """How a log file has changed since it was listed; an empty string if unchanged."""
        current = self.store.stat(known.name)
        if current is None:
            return "is gone"
        size_bytes = current.size_bytes
        difference_ms = abs(current.modified_ms - known.modified_ms)
        if size_bytes != known.size_bytes or difference_ms > self.times_apart_ms(key):
            return f"has {size_bytes} bytes instead of {known.size_bytes}, or was written again"
        return ""

    def has_version(self, key: str, version: int) -> bool:
        """Whether the log has the commit of a version."""
        return self.store.stat(f"{key}/_delta_log/{version:020}.json") is not None

    def times_apart_ms(self, key: str) -> int:
        """How much an unchanged file's times may differ between a listing and a HEAD request.

        One second on S3, because some servers round one of the two times to whole seconds.
        """
        return 1_000 if self.on_s3(key) else 0


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
    mounts = {key: _mount(uri, bucket_of) for key, uri in elsewhere.items()}
    uris = {key: uri.replace("s3://", "s3a://", 1) for key, uri in elsewhere.items()}
    return Lake(settings=settings, store=MountedStore(store, mounts), elsewhere=uris)


def _mount(uri: str, bucket_of: Callable[[str], Store]) -> Mount:
    if not uri.startswith("s3://"):
        return Mount(store=DiskStore(Path(uri)))
    bucket, folder = split_bucket(uri)
    return Mount(store=bucket_of(bucket), folder=folder)


if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
