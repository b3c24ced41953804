"""Adds inventories to the inventory table, from scans or reports of AWS, and reconciles them.

The logs are read after the inventory was made, as `reconcile` requires. Nothing is written.

1. If AWS delivers reports, the newest one is loaded. If the table has it already, it is reconciled
   again, and the following steps are omitted. Without a report, the storage is listed.
2. The listing, or the report with all its checksums, is read once into a temporary file.
3. The logs of the tables in it are read. With these, the rows are reconciled, and written to new
   data files with the table that each belongs to. One data file at a time is in memory.
4. One commit adds the data files, and removes those of the configuration's previous inventory.
5. Files that the table's newest versions no longer have, and leftovers of killed runs, are deleted.

**Safety properties** (tests in `test_load.py`)
- A listing or report that is not read to its end, a run that is killed, and a report that is
  refused, even at its last row, change nothing in the table.
- The commit fails if another program has changed the table since it was read.
- Only files that the table has not had for `_KEPT_DAYS` are deleted.
"""

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from tempfile import TemporaryFile
from typing import IO, Any
from urllib.parse import unquote
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import Broken, LakehouseError, Refused, Transient
from lakehouse.base.reasons import CheckResult
from lakehouse.base.stored_objects import SCAN, UNFINISHED, Inventory, KnownObjects, StoredObject
from lakehouse.base.text import DAY_MS
from lakehouse.compact.assess import note_cold_files
from lakehouse.declare.table import Table
from lakehouse.delta.file_columns import DataFile
from lakehouse.delta.snapshot import Snapshot, TableFacts, file_paths
from lakehouse.lake.commits import (
    Actions,
    commit_after_newest,
    commit_info,
    create_version,
    refuse_unsafe_storage,
    table_location,
)
from lakehouse.lake.deltalake_tables import with_due_checkpoint
from lakehouse.lake.lake import Lake, PathResolver, landing_prefixes
from lakehouse.vacuum.inventory.plan.checks import (
    assess_complete,
    assess_missing,
    assess_readable,
)
from lakehouse.vacuum.inventory.plan.reconcile import (
    KnownTables,
    Owners,
    Reconciliation,
    TableFiles,
    fold_table_files,
    reconcile,
    table_roots,
)
from lakehouse.vacuum.inventory.stored_reports import newest_report, read_report
from lakehouse.vacuum.inventory.table import (
    BATCH_ROWS,
    OBJECT_SCHEMA,
    batch_of,
    inventory_record,
    inventory_table,
    known_inventories,
    name_in,
    objects_of,
    read_keys,
    read_objects,
)


def reconcile_inventory(
    lake: Lake, declared: Iterable[Table], inventory: Inventory, *, now_ms: int
) -> Reconciliation:
    """Compares an inventory with the logs of the tables in it, and of `declared` tables.

    Raises:
        Refused: the inventory cannot be read.
    """
    prefix = lake.store.prefix
    keys = (key.removeprefix(prefix) for key in read_keys(lake, inventory))
    known = read_table_files(lake, declared, table_roots(keys))
    objects = read_objects(lake, inventory)
    in_storage = KnownObjects(objects=objects, settled_ms=inventory.settled_ms)
    return reconcile(known, in_storage, now_ms=now_ms)


def read_table_files(lake: Lake, declared: Iterable[Table], found: Set[str]) -> KnownTables:
    """The files of each table, or the reason why its log cannot be read.

    The tables are those in `found`, and the declared tables in the lake, if they exist.
    """
    own = [table for table in declared if table.key not in lake.elsewhere]
    table_files: list[TableFiles] = []
    unread: dict[str, str] = {}
    for table in sorted(found | {each.key for each in own}):
        try:
            facts = lake.facts(table)
            if facts is not None:
                table_files.append(covered_files(lake, facts))
        except LakehouseError as error:
            unread[table] = str(error)
    return KnownTables(
        files=table_files,
        unread=unread,
        landed=landing_prefixes(lake, own),
        lake_prefix=lake.store.prefix,
    )


def covered_files(lake: Lake, facts: TableFacts) -> TableFiles:
    """The files of a table in the lake."""
    # No inventory covers tables outside the lake, so paths to them are not resolved.
    resolve = PathResolver(replace(lake, elsewhere={}))
    commits = facts.history.commits
    return fold_table_files(facts.snapshot, resolve=resolve, commits=commits, now_ms=now_ms())


_FILE_BATCHES = 50  # of `BATCH_ROWS` rows, in one data file
PARTITION_COLUMNS = ("bucket", "report")
_TABLE_COLUMN = pa.field("lake_table", pa.string())
_LOG_TYPES = {pa.string(): "string", pa.int64(): "long", pa.bool_(): "boolean"}
# Name and type in the log of each column.
_COLUMNS = [
    *((each.name, _LOG_TYPES[each.type]) for each in (*OBJECT_SCHEMA, _TABLE_COLUMN)),
    *((name, "string") for name in PARTITION_COLUMNS),
]
# A day more than Delta's retention of removed files.
_KEPT_DAYS = 8
_OWN_FILE = re.compile(rf"[0-9a-f-]{{36}}\.parquet|{UNFINISHED.pattern}")


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryOutcome:
    """An inventory in the table, and its reconciliation with the logs.

    `newly_loaded` is the number of rows that this run added.
    """

    inventory: Inventory
    reconciliation: Reconciliation
    newly_loaded: int
    version: int
    seconds: float

    @property
    def missing_count(self) -> int:
        """The number of missing files that the newest versions of tables read."""
        return sum(len(table.missing) for table in self.reconciliation.tables)


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
    for last in known_inventories(lake):
        is_loaded = last.configuration == report.configuration
        if is_loaded and last.created_ms >= report.created_ms:
            with suppress(Refused):  # if a data file is damaged, the report is loaded again
                return _reconciled_again(lake, tables, last, now_ms=now_ms)
    inventory = Inventory(
        name=report.name, created_ms=report.created_ms, object_count=0, size_bytes=0
    )
    return _load(lake, tables, inventory, read_report(lake.store, report))


def scan(lake: Lake, declared: Iterable[Table] = (), *, now_ms: int) -> InventoryOutcome:
    """Lists the storage, and adds the list to the table. Raises as `update_inventory`."""
    began = datetime.fromtimestamp(now_ms / 1_000, tz=UTC)
    name = f"{SCAN}/{began:%Y-%m-%dT%H-%MZ}"
    inventory = Inventory(name=name, created_ms=now_ms, object_count=0, size_bytes=0)
    return _load(lake, [*declared], inventory, lake.store.walk(""))


def judge(lake: Lake, outcome: InventoryOutcome) -> tuple[CheckResult, ...]:
    """The result of each check in `plan.checks.CHECKS`."""
    return (
        assess_complete(outcome.inventory),
        assess_missing(outcome.reconciliation),
        assess_readable(outcome.reconciliation, address=lake.settings.root),
    )


def _reconciled_again(
    lake: Lake, tables: Sequence[Table], inventory: Inventory, *, now_ms: int
) -> InventoryOutcome:
    began = time.monotonic()
    reconciliation = reconcile_inventory(lake, tables, inventory, now_ms=now_ms)
    return _outcome(lake, inventory, reconciliation, newly_loaded=0, began=began)


def _load(
    lake: Lake, tables: Sequence[Table], inventory: Inventory, objects: Iterator[StoredObject]
) -> InventoryOutcome:
    """Steps 2 to 5. The counts of `inventory` are not yet known."""
    began = time.monotonic()
    key = inventory_table(lake.store.bucket)
    refuse_unsafe_storage(lake, key, asked=f"inventory of {lake.store.bucket}")
    facts = lake.facts(key)
    with TemporaryFile() as spool:
        found = _write_spool(spool, objects, lake)
        known = read_table_files(lake, tables, found)
        adds = list[dict[str, Any]]()
        rows = _with_tables(spool, lake, known, adds)
        in_storage = KnownObjects(objects=rows, settled_ms=inventory.settled_ms)
        reconciliation = reconcile(known, in_storage, now_ms=now_ms())
    inventory = replace(
        inventory, object_count=reconciliation.file_count, size_bytes=reconciliation.size_bytes
    )
    _commit(lake, key, facts, inventory, adds)
    _delete_dead_files(lake, key)
    if lake.settings.on_s3:
        note_cold_files(lake, reconciliation)
    return _outcome(
        lake, inventory, reconciliation, newly_loaded=inventory.object_count, began=began
    )


def _outcome(
    lake: Lake,
    inventory: Inventory,
    reconciliation: Reconciliation,
    *,
    newly_loaded: int,
    began: float,
) -> InventoryOutcome:
    facts = lake.facts(inventory_table(lake.store.bucket))
    assert facts is not None  # the inventory is in the table
    return InventoryOutcome(
        inventory=inventory,
        reconciliation=reconciliation,
        newly_loaded=newly_loaded,
        version=facts.snapshot.version,
        seconds=time.monotonic() - began,
    )


def _write_spool(spool: IO[bytes], objects: Iterator[StoredObject], lake: Lake) -> set[str]:
    """Writes the objects to a file; returns the tables among them."""
    prefix = lake.store.prefix
    tables = set[str]()
    with pq.ParquetWriter(spool, OBJECT_SCHEMA) as writer:
        while batch := list(islice(objects, BATCH_ROWS)):
            tables |= table_roots(each.key.removeprefix(prefix) for each in batch)
            writer.write_batch(batch_of(batch))
    spool.seek(0)
    return tables


def _with_tables(
    spool: IO[bytes], lake: Lake, known: KnownTables, adds: list[dict[str, Any]]
) -> Iterator[StoredObject]:
    """The objects of the spool. Each is also written to a data file, with its table.

    The `add` of each data file (at least one) is appended to `adds`. At most one file is in memory.
    """
    prefix = lake.store.prefix
    owners = Owners([*(each.table for each in known.files), *known.unread])

    def table_of(key: str) -> str | None:
        return owners.table_of(key.removeprefix(prefix))

    with pq.ParquetFile(spool) as file:
        all_batches = file.iter_batches(BATCH_ROWS)
        while (batches := [*islice(all_batches, _FILE_BATCHES)]) or not adds:
            tables = pa.chunked_array(
                [
                    pa.array(
                        [table_of(key) for key in batch.column("key").to_pylist()], pa.string()
                    )
                    for batch in batches
                ],
                pa.string(),
            )
            rows = pa.Table.from_batches(batches, OBJECT_SCHEMA)
            adds.append(_put_rows(lake, rows.append_column(_TABLE_COLUMN, tables)))
            for batch in batches:
                yield from objects_of(lake.store.bucket, batch)


def _put_rows(lake: Lake, rows: pa.Table) -> dict[str, Any]:
    """Writes a new data file of the inventory table; returns its `add`."""
    buffer = pa.BufferOutputStream()
    pq.write_table(rows, buffer, write_page_checksum=True)
    data = buffer.getvalue().to_pybytes()
    name = f"{uuid4()}.parquet"
    lake.store.put(f"{inventory_table(lake.store.bucket)}/{name}", data)
    return {
        "path": name,
        "size": len(data),
        "modificationTime": now_ms(),
        "dataChange": True,
        "stats": json.dumps({"numRecords": rows.num_rows}),
    }


def _commit(
    lake: Lake,
    key: str,
    facts: TableFacts | None,
    inventory: Inventory,
    adds: Sequence[Mapping[str, Any]],
) -> None:
    """Step 4. `facts` is the table, if it existed before the listing."""
    partition = {"bucket": lake.store.bucket, "report": inventory.name}
    actions: Actions = [{"add": {**add, "partitionValues": partition}} for add in adds]
    record = {**inventory_record(inventory), "mark": uuid4().hex}
    changed = f"{key}: another program changed the table meanwhile. Use lakehouse inventory load"

    def check(_newest: Snapshot) -> None:
        raise Transient(changed)

    with table_location(lake, key) as location:
        if facts is None:
            protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
            info = commit_info("WRITE", -1, record)
            if not create_version(
                location, 0, [info, protocol, {"metaData": _metadata()}, *actions]
            ):
                raise Transient(changed)
            return
        for file in facts.snapshot.files:
            if name_in(file).partition("/")[0] == inventory.configuration:
                actions.append(_removal(key, file))
        info = commit_info("WRITE", facts.snapshot.version, record)
        commit_after_newest(lake, facts.snapshot, location, [info, *actions], check)
    after = lake.facts(key)
    if after is not None:
        with_due_checkpoint(lake, after)


def _removal(key: str, file: DataFile) -> dict[str, Any]:
    if file.deletion_vector is not None:
        raise Broken(
            f"{key}: another program has deleted rows of {file.path}. Use RESTORE to return to the "
            "version before that deletion"
        )
    remove = {
        "path": file.path,
        "deletionTimestamp": now_ms(),
        "dataChange": True,
        "extendedFileMetadata": True,
        "partitionValues": dict(file.partition),
        "size": file.size_bytes,
    }
    return {"remove": remove}


def _metadata() -> dict[str, Any]:
    fields = [
        {"name": name, "type": delta, "nullable": True, "metadata": {}} for name, delta in _COLUMNS
    ]
    return {
        "id": str(uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [*PARTITION_COLUMNS],
        "configuration": {},
        "createdTime": now_ms(),
    }


def _delete_dead_files(lake: Lake, key: str) -> None:
    """Step 5. The inventory is complete even if this fails; the next run then tries again."""
    horizon_ms = now_ms() - _KEPT_DAYS * DAY_MS
    dead = list[str]()
    with suppress(LakehouseError):
        facts = lake.facts(key)
        if facts is None:
            return
        live = {unquote(path) for path in file_paths(facts.snapshot.files)}
        removed_ms = {unquote(each.path): each.deleted_ms for each in facts.snapshot.tombstones}
        for each in lake.store.walk(key):
            path = each.key.removeprefix(f"{lake.store.prefix}{key}/")
            is_ours = path in removed_ms or _OWN_FILE.fullmatch(path)
            last_ms = removed_ms.get(path, each.modified_ms)
            if path not in live and is_ours and last_ms is not None and last_ms < horizon_ms:
                dead.append(f"{key}/{path}")
        lake.store.delete(dead)
