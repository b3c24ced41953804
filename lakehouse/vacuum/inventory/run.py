"""Adds inventories to the inventory table, from scans or reports of AWS, and reconciles them.

The logs are read after the inventory was made, as `reconcile` requires. Nothing is written.

1. If AWS delivers reports, the newest one is loaded. If the table has it already, it is reconciled
   again, and the following steps are omitted. Without a report, the storage is listed.
2. The listing, or the report with all its checksums, is read once into a temporary file.
3. The logs of the tables in it are read. With these, the rows are reconciled, and written to new
   data files with the table that each belongs to. One data file at a time is in memory.
4. One commit adds the data files, and removes those of the configuration's previous inventory.
5. Files that the table's newest versions no longer have, and leftovers of killed runs, are deleted.

**Safety properties** (tests in `test_run.py`)
- A listing or report that is not read to its end, a run that is killed, and a report that is
  refused, even at its last row, change nothing in the table.
- The commit fails if another program has changed the table since it was read.
- Only files that the table has not had for `_KEPT_DAYS` are deleted.

The inventory table `inventory/<bucket>` has the newest inventory of each configuration. Scans of
ours have the configuration `lakehouse-scan`, reports of AWS that of their bucket. Each commit that
adds an inventory names it (`inventory_record`), and removes the previous one of its configuration,
which time travel still shows.

**Safety property** (`test_table.py`): an inventory is used only if the table has all of its rows.
"""

import json
import re
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime
from itertools import islice
from tempfile import TemporaryFile
from typing import IO, Any
from urllib.parse import unquote
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import LakehouseError, Refused, Transient
from lakehouse.base.frozen import frozen
from lakehouse.base.stored_objects import SCAN, UNFINISHED, Inventory, StoredObject
from lakehouse.base.text import DAY_MS
from lakehouse.compact.assess import note_cold_files
from lakehouse.declare.table import Table
from lakehouse.delta.commits import Commits
from lakehouse.delta.snapshot import DataFile, TableFacts, made_of_columns, row_total
from lakehouse.lake.commits import (
    Actions,
    commit_info,
    create_version,
    delete_dead_files,
    file_action,
    new_table,
    refuse_deleted_rows,
    refuse_unsafe_storage,
    with_due_checkpoint,
)
from lakehouse.lake.lake import Lake, PathResolver, landing_prefixes
from lakehouse.vacuum.inventory.plan import (
    KnownTables,
    Owners,
    Reconciliation,
    TableFiles,
    fold_table_files,
    is_current,
    reconcile,
    table_roots,
)
from lakehouse.vacuum.inventory.stored_reports import newest_report, read_report

BATCH_ROWS = 10_000
_FLAGS = ("is_dir", "is_latest", "is_delete_marker")
_TYPES = {"size_bytes": pa.int64(), "modified_ms": pa.int64()} | dict.fromkeys(_FLAGS, pa.bool_())
# The columns of an object. Its bucket is a partition of the table.
OBJECT_COLUMNS = tuple(each.name for each in fields(StoredObject) if each.name != "bucket")
OBJECT_SCHEMA = pa.schema([(name, _TYPES.get(name, pa.string())) for name in OBJECT_COLUMNS])


def inventory_table(lake: Lake) -> str:
    """The key of the inventory table of a lake's bucket."""
    return f"inventory/{lake.store.bucket}"


def known_inventories(lake: Lake) -> list[Inventory]:
    """The newest inventory of each configuration, newest first."""
    facts = lake.facts(inventory_table(lake))
    return [] if facts is None else inventories_of(facts)


def inventory_record(inventory: Inventory) -> dict[str, Any]:
    """The `userMetadata` of the commit that adds an inventory to its table."""
    return {"inventory": asdict(inventory)}


def inventories_in(history: Commits) -> Iterator[Inventory]:
    """The inventories that these commits added, newest commit first. Others are skipped."""
    for commit in reversed(history.commits):
        try:
            record = json.loads(commit.user_metadata or "{}")["inventory"]
            inventory = Inventory(
                name=str(record["name"]),
                created_ms=int(record["created_ms"]),
                object_count=int(record["object_count"]),
                size_bytes=int(record["size_bytes"]),
            )
        except (ValueError, KeyError, TypeError):
            continue
        yield inventory


def inventories_of(facts: TableFacts) -> list[Inventory]:
    """As `known_inventories`, from the table's log.

    An inventory is omitted if the table lacks one of its rows, for example because a user deleted
    rows.
    """
    newest = dict[str, Inventory]()
    for each in inventories_in(facts.history):
        newest.setdefault(each.configuration, each)
    complete = list[Inventory]()
    for inventory in newest.values():
        files = [each for each in facts.snapshot.files if name_in(each) == inventory.name]
        is_whole = all(each.deletion_vector is None for each in files)
        if files and is_whole and row_total(files) == inventory.object_count:
            names = tuple(f"{facts.snapshot.table}/{unquote(each.path)}" for each in files)
            complete.append(replace(inventory, files=names))
    return sorted(complete, key=lambda each: (each.created_ms, each.name), reverse=True)


def newest_inventory(lake: Lake, *, configuration: str | None = None) -> Inventory:
    """The newest inventory, of `configuration` if given.

    Raises:
        Refused: there is no inventory.
    """
    for each in known_inventories(lake):
        if configuration in (None, each.configuration):
            return each
    of_configuration = "" if configuration is None else f" of configuration {configuration!r}"
    raise Refused(
        f"inventory of {lake.store.bucket}: there is none{of_configuration} yet. Use lakehouse "
        "inventory load"
    )


def read_objects(lake: Lake, inventory: Inventory) -> Iterator[StoredObject]:
    """Every object of an inventory. One data file at a time is in memory."""
    for batch in _batches(lake, inventory, OBJECT_COLUMNS):
        yield from objects_of(lake.store.bucket, batch)


def name_in(file: DataFile) -> str:
    """The name of the inventory that a file of the table belongs to."""
    return dict(file.partition).get("report") or ""


def batch_of(objects: Sequence[StoredObject]) -> pa.RecordBatch:
    """Objects as rows."""
    columns = {name: [getattr(each, name) for each in objects] for name in OBJECT_COLUMNS}
    return pa.RecordBatch.from_pydict(columns, schema=OBJECT_SCHEMA)


def objects_of(bucket: str, batch: pa.RecordBatch) -> Sequence[StoredObject]:
    """Rows as objects."""
    columns = {name: batch.column(name).to_pylist() for name in OBJECT_COLUMNS}
    return made_of_columns(
        StoredObject, batch.num_rows, bucket=[bucket] * batch.num_rows, **columns
    )


class InventoryRows:
    """An inventory's current objects, in a temporary file for the vacuums of many tables.

    `tables` are the folders, relative to the lake's root, that contain a Delta log. The constructor
    reads the whole inventory.
    """

    def __init__(self, lake: Lake, inventory: Inventory) -> None:
        self.inventory = inventory
        self.tables = set[str]()
        # "" is a temporary file, which SQLite deletes when the connection is closed.
        self._rows = sqlite3.connect("", check_same_thread=False)
        self._rows.execute("CREATE TABLE object (key TEXT, size_bytes, modified_ms, is_dir)")
        self._rows.executemany("INSERT INTO object VALUES (?, ?, ?, ?)", self._read(lake))
        self._rows.execute("CREATE INDEX by_key ON object (key)")

    def below(self, folder: str) -> Iterator[StoredObject]:
        """The objects whose key begins with `folder`, which ends in `/`, sorted by key."""
        end = folder[:-1] + chr(ord("/") + 1)  # follows every key that begins with `folder`
        query = "SELECT * FROM object WHERE key >= ? AND key < ? ORDER BY key"
        for key, size_bytes, modified_ms, is_dir in self._rows.execute(query, (folder, end)):
            yield StoredObject(
                bucket="",
                key=key,
                size_bytes=size_bytes,
                modified_ms=modified_ms,
                is_dir=bool(is_dir),
            )

    def _read(self, lake: Lake) -> Iterator[tuple[object, ...]]:
        for each in filter(is_current, read_objects(lake, self.inventory)):
            if "/_delta_log/" in each.key:
                self.tables |= table_roots([each.key.removeprefix(lake.store.prefix)])
            yield each.key, each.size_bytes, each.modified_ms, each.is_dir


def _batches(lake: Lake, inventory: Inventory, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for name in inventory.files:
        try:
            data = lake.store.read(name)
            source = pa.BufferReader(data)
            with pq.ParquetFile(source, page_checksum_verification=True) as file:
                yield from file.iter_batches(BATCH_ROWS, columns=list(columns))
        except (OSError, pa.ArrowException) as error:
            raise Refused(
                f"inventory {inventory.name}: {name} cannot be read ({type(error).__name__}: "
                f"{error}). Use lakehouse inventory load"
            ) from error


def reconcile_inventory(
    lake: Lake, declared: Iterable[Table], inventory: Inventory, *, now_ms: int
) -> Reconciliation:
    """Compares an inventory with the logs of the tables in it, and of `declared` tables.

    Raises:
        Refused: the inventory cannot be read.
    """
    prefix = lake.store.prefix
    found = set[str]()
    for batch in _batches(lake, inventory, ("key",)):  # faster than to read whole objects
        found |= table_roots(key.removeprefix(prefix) for key in batch.column("key").to_pylist())
    known = read_table_files(lake, declared, found)
    objects = read_objects(lake, inventory)
    return reconcile(known, objects, settled_ms=inventory.settled_ms, now_ms=now_ms)


def read_table_files(lake: Lake, declared: Iterable[Table], found: Set[str]) -> KnownTables:
    """The files of each table, or the reason why its log cannot be read.

    The tables are those in `found`, and the declared tables in the lake, if they exist.
    """
    # No inventory covers tables outside the lake, so paths to them are not resolved.
    resolve = PathResolver(replace(lake, elsewhere={}))
    own = [table for table in declared if table.key not in lake.elsewhere]
    table_files: list[TableFiles] = []
    unread: dict[str, str] = {}
    for table in sorted(found | {each.key for each in own}):
        try:
            facts = lake.facts(table)
            if facts is not None:
                table_files.append(fold_table_files(facts, resolve=resolve, now_ms=now_ms()))
        except LakehouseError as error:
            unread[table] = str(error)
    return KnownTables(
        files=table_files,
        unread=unread,
        landed=landing_prefixes(lake, own),
        lake_prefix=lake.store.prefix,
    )


_FILE_BATCHES = 50  # of `BATCH_ROWS` rows, in one data file
PARTITION_COLUMNS = ("bucket", "report")
_TABLE_COLUMN = pa.field("lake_table", pa.string())
# A day more than Delta's retention of removed files.
_KEPT_DAYS = 8
_OWN_FILE = re.compile(rf"[0-9a-f-]{{36}}\.parquet|{UNFINISHED.pattern}")


@frozen
class InventoryOutcome:
    """An inventory in the table, and its reconciliation with the logs.

    `newly_loaded` is the number of rows that this run added.
    """

    inventory: Inventory
    reconciliation: Reconciliation
    newly_loaded: int
    seconds: float


def update_inventory(
    lake: Lake, declared: Iterable[Table], *, now_ms: int, configuration: str | None = None
) -> InventoryOutcome:
    """Adds the newest report of AWS (of `configuration`, if given), or a scan, to the table.

    On S3, also notes the tables' cold files (`compact.assess`).

    Raises:
        Refused: the report cannot be trusted, there is none of `configuration`, or the storage does
            not honour conditional creates. The table is unchanged.
        Transient: another program changed the table meanwhile.
    """
    began = time.monotonic()
    tables = list(declared)
    report = None
    if configuration != SCAN:
        report = newest_report(lake.store, now_ms=now_ms, configuration=configuration)
    if report is None:
        if configuration in (None, SCAN):
            return scan(lake, tables, now_ms=now_ms)
        raise Refused(
            f"inventory of {lake.store.bucket}: there is no complete report of configuration "
            f"{configuration!r} yet"
        )
    inventory = Inventory(name=report.name, created_ms=report.created_ms)
    for last in known_inventories(lake):
        is_loaded = last.configuration == inventory.configuration
        if is_loaded and last.created_ms >= inventory.created_ms:
            with suppress(Refused):  # if a data file is damaged, the report is loaded again
                return InventoryOutcome(
                    inventory=last,
                    reconciliation=reconcile_inventory(lake, tables, last, now_ms=now_ms),
                    newly_loaded=0,
                    seconds=time.monotonic() - began,
                )
    return _load(lake, tables, inventory, read_report(lake.store, report))


def scan(lake: Lake, declared: Iterable[Table] = (), *, now_ms: int) -> InventoryOutcome:
    """Lists the storage, and adds the list to the table. Raises as `update_inventory`."""
    began = datetime.fromtimestamp(now_ms / 1_000, tz=UTC)
    name = f"{SCAN}/{began:%Y-%m-%dT%H-%MZ}"
    inventory = Inventory(name=name, created_ms=now_ms)
    return _load(lake, [*declared], inventory, lake.store.walk(""))


def _load(
    lake: Lake, tables: Sequence[Table], inventory: Inventory, objects: Iterator[StoredObject]
) -> InventoryOutcome:
    """Steps 2 to 5. The counts of `inventory` are not yet known."""
    began = time.monotonic()
    key = inventory_table(lake)
    refuse_unsafe_storage(lake, key, asked=f"inventory of {lake.store.bucket}")
    facts = lake.facts(key)
    with TemporaryFile() as spool:
        found = set[str]()
        with pq.ParquetWriter(spool, OBJECT_SCHEMA) as writer:
            while batch := list(islice(objects, BATCH_ROWS)):
                found |= table_roots(each.key.removeprefix(lake.store.prefix) for each in batch)
                writer.write_batch(batch_of(batch))
        spool.seek(0)
        known = read_table_files(lake, tables, found)
        written = list[DataFile]()
        rows = _with_tables(spool, lake, known, written)
        reconciliation = reconcile(known, rows, settled_ms=inventory.settled_ms, now_ms=now_ms())
    inventory = replace(
        inventory, object_count=reconciliation.file_count, size_bytes=reconciliation.size_bytes
    )
    _commit(lake, key, facts, inventory, written)
    with suppress(LakehouseError):  # the next run tries again
        delete_dead_files(lake, key, now_ms() - _KEPT_DAYS * DAY_MS, _OWN_FILE)
    if lake.settings.on_s3:
        note_cold_files(lake, reconciliation)
    return InventoryOutcome(
        inventory=inventory,
        reconciliation=reconciliation,
        newly_loaded=inventory.object_count,
        seconds=time.monotonic() - began,
    )


def _with_tables(
    spool: IO[bytes], lake: Lake, known: KnownTables, written: list[DataFile]
) -> Iterator[StoredObject]:
    """The objects of the spool. Each is also written to a data file, with its table.

    Each data file (at least one) is appended to `written`. At most one is in memory.
    """
    prefix = lake.store.prefix
    owners = Owners([*(each.table for each in known.files), *known.unread])
    with pq.ParquetFile(spool) as file:
        all_batches = file.iter_batches(BATCH_ROWS)
        while (batches := [*islice(all_batches, _FILE_BATCHES)]) or not written:
            tables = list[pa.Array]()
            for batch in batches:
                keys = batch.column("key").to_pylist()
                owner_names = [owners.table_of(key.removeprefix(prefix)) for key in keys]
                tables.append(pa.array(owner_names, pa.string()))
            rows = pa.Table.from_batches(batches, OBJECT_SCHEMA)
            column = pa.chunked_array(tables, pa.string())
            written.append(_put_rows(lake, rows.append_column(_TABLE_COLUMN, column)))
            for batch in batches:
                yield from objects_of(lake.store.bucket, batch)


def _put_rows(lake: Lake, rows: pa.Table) -> DataFile:
    """Writes a new data file of the inventory table."""
    buffer = pa.BufferOutputStream()
    pq.write_table(rows, buffer, write_page_checksum=True)
    data = buffer.getvalue().to_pybytes()
    name = f"{uuid4()}.parquet"
    lake.store.put(f"{inventory_table(lake)}/{name}", data)
    return DataFile(path=name, size_bytes=len(data), modified_ms=now_ms(), row_count=rows.num_rows)


def _commit(
    lake: Lake,
    key: str,
    facts: TableFacts | None,
    inventory: Inventory,
    written: Sequence[DataFile],
) -> None:
    """Step 4. `facts` is the table, if it existed before the listing."""
    version = -1 if facts is None else facts.snapshot.version
    actions: Actions = [commit_info("WRITE", version, inventory_record(inventory))]
    if facts is None:
        partitions = pa.schema(dict.fromkeys(PARTITION_COLUMNS, pa.string()))
        columns = pa.schema([*OBJECT_SCHEMA, _TABLE_COLUMN, *partitions])
        actions += new_table(columns, partition_by=PARTITION_COLUMNS)
    else:
        previous = [
            file
            for file in facts.snapshot.files
            if name_in(file).partition("/")[0] == inventory.configuration
        ]
        refuse_deleted_rows(key, previous)
        actions += [file_action("remove", file) for file in previous]
    partition = (("bucket", lake.store.bucket), ("report", inventory.name))
    actions += [file_action("add", replace(file, partition=partition)) for file in written]
    if not create_version(lake, key, version + 1, actions):
        raise Transient(
            f"{key}: another program changed the table meanwhile. Use lakehouse inventory load"
        )
    after = lake.facts(key)
    if after is not None:
        with_due_checkpoint(lake, after)
