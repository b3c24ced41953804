"""A lake: its settings, its store and its tables, and the Delta tables below any address.

Below `_lakehouse/`, the lake keeps small objects of its own, as JSON:

- Batch manifests and segments: `_lakehouse/ingest/` (`land/ledger.py`).
- Leases on tables: `_lakehouse/locks/` (`lake/lease.py`).
- Unverified commits of compactions: `_lakehouse/unverified/` (`compact/verify.py`).
- Records of `maintain` calls: `_lakehouse/maintained/` (`lake/declared_tables.py`).
- The newest report page: `_lakehouse/reports/report.html` (`report/run.py`).

What has ended, and what the lake notes about tables, are Delta tables: `_lakehouse/operations` and
`_lakehouse/records` (`lake/state_tables.py`).

A search for tables takes few listings and writes nothing. With `for_each_table`, a failure for one
table does not stop the others.
"""

import os
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache, partial
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from lakehouse.base.errors import Broken, LakehouseError, Refused, as_defect
from lakehouse.base.frozen import frozen
from lakehouse.base.paths import bare_uri, split_bucket
from lakehouse.base.settings import Settings
from lakehouse.declare.policies import LAYERS
from lakehouse.declare.table import Table, undeclared_among
from lakehouse.delta.commits import Commits
from lakehouse.delta.log import TableFacts, garbage_uncollected, history_since, read_facts
from lakehouse.delta.snapshot import log_version
from lakehouse.store import (
    DiskStore,
    MountedStore,
    Store,
    StoredFile,
    TimeBudget,
    at_once,
    real_address,
    store_at,
)
from lakehouse.store.s3 import s3_place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# One search looks into at most this many folders. A warehouse of a few thousand tables has about as
# many other folders. A bucket with more folders must be searched part by part.
MOST_FOLDERS = 10_000
_TABLES_AT_ONCE = 8
_LOG = "_delta_log"


@frozen
class Lake:
    """A lake's settings, and the store at the lake's root. Names in the store begin at the root.

    `elsewhere` maps the keys of tables outside the root to their addresses, as Spark spells them
    (`s3a://…`). In the store, names of their files begin with the table's key, too.
    """

    settings: Settings
    store: Store
    elsewhere: Mapping[str, str] = {}

    def within(self, budget: TimeBudget) -> "Lake":
        """The same lake. All its requests share the time budget of one sensor tick."""
        return replace(self, store=self.store.within(budget))

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
        store, folder = self.store.mounts[key]
        if not isinstance(store, DiskStore):
            parent = folder.rpartition("/")[0]
            return next(iter(store.walk(parent)), None) is not None
        path = Path(self.elsewhere[key])
        try:
            if not path.exists():
                path = path.parent
            return any(path.iterdir())
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

    def existing_facts(
        self, key: str, asked: str = "read:", *, version: int | None = None
    ) -> TableFacts:
        """The facts in the log of a table that must exist; `asked` begins the message otherwise.

        Raises:
            Refused: there is no table.
        """
        facts = self.facts(key, version=version)
        if facts is None:
            raise Refused(
                f"{asked} {key} has no table yet. Use `lakehouse materialize {key}` first"
            )
        return facts

    def history_since(self, facts: TableFacts, version: int) -> Commits:
        """The commits after `version` up to these facts, as far back as the log has them.

        Raises as `newest_first`.
        """
        return history_since(self.store, facts.history, version)

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
    elsewhere = dict[str, str]()
    for table in tables:
        own_address = real_address(f"{settings.root}/{table.key}")
        if table.adopted and real_address(table.adopted.uri) != own_address:
            elsewhere[table.key] = table.adopted.uri
    if not elsewhere:
        return Lake(settings=settings, store=store)
    bucket_of = cache(lambda bucket: store_at(f"s3://{bucket}", make_client))
    mounts = dict[str, tuple[Store, str]]()
    for key, uri in elsewhere.items():
        if uri.startswith("s3://"):
            bucket, folder = split_bucket(uri)
            mounts[key] = (bucket_of(bucket), folder)
        else:
            mounts[key] = (store_at(uri), "")
    uris = {key: uri.replace("s3://", "s3a://", 1) for key, uri in elsewhere.items()}
    return Lake(settings=settings, store=MountedStore(store, mounts), elsewhere=uris)


@frozen
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
        self._real_folder = cache(os.path.realpath)

    def __call__(self, uri: str) -> str | None:
        """The object's name in the lake; `None` if the object seems to be outside the lake.

        For a table outside the lake's root, names begin with the table's key, as in the lake's
        store.
        """
        bare = bare_uri(uri)
        if bare.startswith("/") and "\0" not in bare:
            folder, _, last = bare.rpartition("/")
            path = f"{self._real_folder(folder or '/')}/{last}"
            bare = bare_uri(os.path.realpath(path) if os.path.islink(path) else path)
        root = bare
        while root not in self._names:  # the deepest root counts, because roots may be nested
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


@frozen
class FoundTables:
    """The addresses of the tables at an address or below it, sorted.

    - `passed`: folders that were skipped because of their names. These are hidden folders, and
      partitions outside of Delta tables.
    - `left_count`: how many known folders were not searched, because there are too many. They may
      contain more folders.
    """

    addresses: tuple[str, ...]
    passed: tuple[str, ...]
    left_count: int = 0


def find_tables(store: Store, address: str) -> FoundTables:
    """The Delta tables in a store whose root is `address`, in at most `MOST_FOLDERS` folders.

    Folders inside a table are not searched.
    """
    tables = list[str]()
    passed = list[str]()
    unsearched = [""]
    left_count = MOST_FOLDERS
    while unsearched and left_count:
        batch = unsearched[:left_count]
        unsearched = unsearched[left_count:]
        left_count -= len(batch)
        contents = at_once(partial(_subfolders, store), batch)
        for folder, subfolders in zip(batch, contents, strict=True):
            if subfolders is None:
                tables.append(folder)
                continue
            for subfolder in subfolders:
                name = subfolder.rpartition("/")[2]
                if name[:1] in ("", "_", ".") or "=" in name:  # hidden, or a partition
                    passed.append(subfolder)
                else:
                    unsearched.append(subfolder)

    def addresses_of(folders: list[str]) -> tuple[str, ...]:
        return tuple(sorted(f"{address}/{folder}".rstrip("/") for folder in folders))

    return FoundTables(
        addresses=addresses_of(tables),
        passed=addresses_of(passed),
        left_count=len(unsearched),
    )


def undeclared_tables(lake: Lake, declared: Collection[Table]) -> tuple[str, ...]:
    """The keys of the tables in the lake's layers that are not declared, sorted.

    Lists the folders of each layer once, and looks for a log in each folder that is not declared.
    """
    folders = [f"{layer}/{name}" for layer in LAYERS for name in lake.store.folders(layer)]
    unknown = undeclared_among(folders, declared)
    return tuple(compress(unknown, at_once(partial(is_table, lake.store), unknown)))


def is_table(store: Store, folder: str) -> bool:
    """Whether a folder has a Delta log, with its first commit or `_last_checkpoint`."""
    log = f"{folder}/{_LOG}" if folder else _LOG
    return any(store.stat(f"{log}/{name}") for name in (f"{0:020}.json", "_last_checkpoint"))


def is_written(lake: Lake, table_key: str) -> bool:
    """Whether a table exists. Reads the log only if `is_table` does not find it."""
    return is_table(lake.store, table_key) or lake.facts(table_key) is not None


def facts_of(lake: Lake, table: Table) -> TableFacts | None:
    """The facts in a table's log; `None` if the lake has not written the table yet.

    Raises:
        Refused: an adopted table does not exist.
    """
    facts = lake.facts(table.key)
    if facts is None and table.adopted:
        raise no_table(table.adopted.uri)
    return facts


def no_table(address: str) -> Refused:
    """The error for an address without a Delta table."""
    return Refused(
        f"there is no Delta table at {address}: it has no {_LOG} with a commit. Use the folder that"
        f" contains the table's {_LOG}. To list the tables in a folder, use lakehouse adopt"
        " --prefix FOLDER --dry-run"
    )


def _subfolders(store: Store, folder: str) -> Sequence[str] | None:
    """The folders inside `folder`, or `None` if it is a table.

    A table's folder may have a million files, so it is only listed if no log is found by name.
    """
    begin = f"{folder}/" if folder else ""
    if is_table(store, folder):
        return None
    names = store.folders(folder)
    if _LOG in names:
        return None
    return [f"{begin}{name}" for name in names]


FoundValue = TypeVar("FoundValue")


@frozen
class Found(Generic[FoundValue]):
    """The result or the error for one table.

    Both are `None` if the operation returned `None`, usually because the table does not exist yet.
    """

    table: Table
    value: FoundValue | None = None
    error: LakehouseError | None = None

    @property
    def reason(self) -> str:
        """Why there is no value, as one word for JSON documents."""
        return type(self.error).__name__.upper() if self.error else "NO_TABLE"

    @property
    def sentence(self) -> str:
        """Why there is no value, as a sentence."""
        return str(self.error) if self.error else "the table is declared, but does not exist yet"


def attempt(table: Table, operation: Callable[[Table], FoundValue | None]) -> Found[FoundValue]:
    """The result of an operation for one table, or its error, so that other tables can follow."""
    try:
        return Found(table=table, value=operation(table))
    except LakehouseError as error:
        return Found(table=table, error=error)
    except Exception as error:
        traceback.print_exc()
        return Found(table=table, error=as_defect(error))


def for_each_table(
    tables: Sequence[Table], operation: Callable[[Table], FoundValue | None]
) -> list[Found[FoundValue]]:
    """Calls `operation` for each table, for several at once.

    Returns the results, or the errors, in the order of `tables`.
    """
    with garbage_uncollected(), ThreadPoolExecutor(max_workers=_TABLES_AT_ONCE) as readers:
        return list(readers.map(partial(attempt, operation=operation), tables))
