"""The inventory table `inventory/<bucket>`: the newest inventory of each configuration.

Scans of ours have the configuration `lakehouse-scan`, reports of AWS that of their bucket. Each
commit that adds an inventory names it (`inventory_record`), and removes the
previous one of its configuration, which time travel still shows.

**Safety property** (`test_table.py`): an inventory is used only if the table has all of its rows.
"""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.base.errors import Refused
from lakehouse.base.stored_objects import Inventory, StoredObject
from lakehouse.delta.commits import Commits
from lakehouse.delta.file_columns import DataFile, made_of_columns
from lakehouse.delta.snapshot import TableFacts, row_total
from lakehouse.lake.lake import Lake
from lakehouse.vacuum.inventory.plan.reconcile import is_current, table_roots

BATCH_ROWS = 10_000
_RECORDED = ("name", "created_ms", "object_count", "size_bytes")
_FLAGS = ("is_dir", "is_latest", "is_delete_marker")
_TYPES = {"size_bytes": pa.int64(), "modified_ms": pa.int64()} | dict.fromkeys(_FLAGS, pa.bool_())
# The columns of an object. Its bucket is a partition of the table.
OBJECT_COLUMNS = tuple(name for name in StoredObject.__slots__ if name != "bucket")
OBJECT_SCHEMA = pa.schema([(name, _TYPES.get(name, pa.string())) for name in OBJECT_COLUMNS])


def inventory_table(bucket: str) -> str:
    """The key of the inventory table of a bucket."""
    return f"inventory/{bucket}"


def known_inventories(lake: Lake) -> list[Inventory]:
    """The newest inventory of each configuration, newest first."""
    facts = lake.facts(inventory_table(lake.store.bucket))
    return [] if facts is None else inventories_of(facts)


def inventory_record(inventory: Inventory) -> dict[str, Any]:
    """The `userMetadata` of the commit that adds an inventory to its table."""
    return {"inventory": {name: getattr(inventory, name) for name in _RECORDED}}


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


def read_keys(lake: Lake, inventory: Inventory) -> Iterator[str]:
    """The keys of an inventory; much faster than `read_objects`."""
    for batch in _batches(lake, inventory, ("key",)):
        yield from batch.column("key").to_pylist()


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
        self._bucket = lake.store.bucket
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
                bucket=self._bucket,
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
