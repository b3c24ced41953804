"""Restores archived partitions into a new table, or into the table that they came from.

Into a new table:

1. The log and the records of the archive are read, as for a reader (`read.py`).
2. The rows of each archived file are counted, and compared with the archive's records.
3. One commit creates the new table with all rows. The archive keeps its files.

Into the table itself:

1. The table's lock is taken. If a killed compaction or archive run left an unverified commit, the
   commit is verified now. The record of an operation without a commit is withdrawn.
2. The log is read, the partitions are chosen, and the rows of each file are counted.
3. A record of the operation is written, with the next number.
4. One append writes the rows. It carries the record's number as its transaction id, so that the
   partitions leave the archive in the same commit.
5. The log is read again. The numbers of rows that the commit added to each partition are compared
   with the record.

The archived files stay until a later expire step (`expire.py`).

**Safety properties** (tests in `test_restore.py`)
- Nothing is written if a file is missing, or does not have its recorded number of rows.
- A row is in the table or in the archive, never in both: the same commit adds it to the table and
  removes it from the archive.
- A run that is killed before step 4 has changed nothing, and the next operation withdraws its
  record. A run that is killed after step 4 has restored everything.
- A new table is never written over an existing one, or into a folder that has files.
"""

import json
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from lakehouse.core.archive.contents import ArchiveContents
from lakehouse.core.archive.records import APP_ID, ArchiveOperation
from lakehouse.core.archive.restore_plan import RestoreOutcome, RestorePlan, RestoreRequest
from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.commits import ROWS_MOVED
from lakehouse.core.delta.partition_values import by_name, typed_partition
from lakehouse.core.delta.snapshot import TableFacts
from lakehouse.core.errors import Broken, Refused
from lakehouse.core.text import count_of
from lakehouse.engine.archive.commit import verify_delete
from lakehouse.engine.archive.read import archived_rows, rows_by_file
from lakehouse.engine.archive.records import archive_contents, record_operation, withdraw_unapplied
from lakehouse.engine.clock import now_ms
from lakehouse.engine.compaction.verify import verify_left
from lakehouse.engine.lake import Lake, TableSession
from lakehouse.engine.spark.delta_writes import FrameWrite, Transaction, write_frame
from lakehouse.engine.spark.errors import translated
from lakehouse.engine.spark.temporary_confs import READ_WHOLE, SHUFFLED_BEFORE_WRITE, session_confs
from lakehouse.engine.store import store_at
from lakehouse.engine.table_lock import hold

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# The shuffle leads to few large files in each partition.
_CONFS = {**READ_WHOLE, SHUFFLED_BEFORE_WRITE: "true"}
# Columns may have names that Parquet allows only with this property.
_COLUMN_MAPPING = "delta.columnMapping.mode"


def plan_restore(lake: Lake, table: Table, request: RestoreRequest) -> RestorePlan:
    """Plans a restore. Nothing is written, and Spark is not needed.

    Raises:
        Refused: there is no table, it is not partitioned by a requested column, or the address of
            the new table already contains files.
    """
    first_file = next(iter(store_at(request.target).walk("")), None) if request.target else None
    if first_file is not None:
        raise Refused(
            f"restore of {table.key}: {request.target} already contains files. Use an empty folder"
        )
    facts = _facts_now(lake, table)
    return _planned(table, request, facts, archive_contents(lake, facts))


def run_restore(
    session: TableSession,
    request: RestoreRequest,
    *,
    tell: Callable[[str], None] = lambda _: None,
) -> RestoreOutcome:
    """Restores archived partitions. `tell` is called before each long step.

    Raises:
        Refused: as `plan_restore`; or a commit of another writer could be lost, or a column seems
            to have been renamed (`archived_rows`).
        Transient: another process holds the table, or the server or the storage is unavailable.
        Broken: an archived file is missing or does not have its recorded number of rows, or the
            commit added other numbers of rows.
    """
    lake = session.lake
    table = session.table
    started = time.monotonic()
    with translated(table.key, operation="restore"), session_confs(session.spark, _CONFS):
        if request.target:
            plan = plan_restore(lake, table, request)
            version = _into_new_table(session, plan, tell)
        else:
            command = f"restore of {table.key}"
            with hold(lake, session.spark, table.key, owner=command):
                verify_left(lake, session.spark, table.key)
                verify_delete(lake, table.key)
                facts = _facts_now(lake, table)
                withdraw_unapplied(lake, facts, archive_contents(lake, facts))
                contents = archive_contents(lake, facts)
                plan = _planned(table, request, facts, contents)
                number = contents.last_number + 1
                version = _into_source(session, facts, plan, number, tell)
    seconds = time.monotonic() - started
    return RestoreOutcome(plan=plan, version_after=version, seconds=seconds)


def _facts_now(lake: Lake, table: Table) -> TableFacts:
    facts = lake.facts(table.key)
    if facts is None:
        raise Refused(
            f"restore of {table.key}: the table does not exist, and without its log the contents of"
            f" its archive are unknown. Read the Parquet files below archive/{table.key}/ directly"
        )
    return facts


def _planned(
    table: Table, request: RestoreRequest, facts: TableFacts, contents: ArchiveContents
) -> RestorePlan:
    names = facts.snapshot.partition_columns
    requested_names = {name for each in request.values for name in each}
    unknown_names = sorted(requested_names.difference(names))
    if unknown_names:
        raise Refused(
            f"restore of {table.key}: the table is not partitioned by {unknown_names[0]!r}. Use"
            f" {' or '.join(names)}"
        )
    return RestorePlan(
        table=table.key,
        version=facts.snapshot.version,
        target=request.target,
        partitions=tuple(each for each in contents.partitions if request.includes(each)),
        stays_days=None if table.archive is None else table.archive.older_than_days,
    )


def _into_new_table(
    session: TableSession, plan: RestorePlan, tell: Callable[[str], None]
) -> int | None:
    """Creates the new table in one commit; returns its version, or `None` without partitions."""
    if not plan.partitions:
        return None
    facts = session.lake.facts(session.key, version=plan.version)
    assert facts is not None
    snapshot = facts.snapshot
    rows = _counted_rows(session, facts, plan, tell)
    tell(f"{plan.table}: writing {plan.row_count:,} rows to {plan.target}")
    properties = dict[str, str]()
    if _COLUMN_MAPPING in snapshot.properties:
        properties[_COLUMN_MAPPING] = snapshot.properties[_COLUMN_MAPPING]
    write = FrameWrite(
        mode="error",
        partition_by=snapshot.partition_columns,
        properties=properties,
        user_metadata=json.dumps({"restored_from": plan.table}),
    )
    write_frame(rows, plan.target.replace("s3://", "s3a://", 1), write)
    return 0


def _into_source(
    session: TableSession,
    facts: TableFacts,
    plan: RestorePlan,
    number: int,
    tell: Callable[[str], None],
) -> int | None:
    """Counts the rows and runs steps 3 to 5 as the operation with this number.

    Returns the version of the append; `None` if there are no partitions to restore.
    """
    if not plan.partitions:
        return None
    rows = _counted_rows(session, facts, plan, tell)
    lake = session.lake
    snapshot = facts.snapshot
    operation = ArchiveOperation(
        number=number,
        kind="restore",
        table_id=snapshot.table_id,
        version=snapshot.version,
        created_ms=now_ms(),
        cutoff_ms=0,
        storage_class="",
        partitions=tuple(each.recorded for each in plan.partitions),
    )
    record_operation(lake.store, session.key, operation)
    tell(f"{plan.table}: writing {plan.row_count:,} rows")
    write = FrameWrite(
        mode="append",
        transaction=Transaction(app_id=APP_ID, version=operation.number),
        user_metadata=json.dumps({ROWS_MOVED: "restore", "number": operation.number}),
    )
    write_frame(rows, snapshot.uri, write)
    return _checked_version(_facts_now(lake, session.table), operation)


def _counted_rows(
    session: TableSession, facts: TableFacts, plan: RestorePlan, tell: Callable[[str], None]
) -> "DataFrame":
    """The rows to restore, after the row count of each file was compared with its record."""
    tell(f"{plan.table}: counting the rows of {count_of(plan.file_count, 'archived file')}")
    actual = rows_by_file(session, facts.snapshot, plan.partitions)
    expected = Counter[str]()
    for partition in plan.partitions:
        for file in partition.files:
            expected[file.archived.rpartition("/")[2]] += file.row_count
    wrong = sorted(name for name in expected if actual[name] != expected[name])
    if wrong:
        name = wrong[0]
        raise Broken(
            f"restore of {plan.table}: wrong row counts in"
            f" {count_of(len(wrong), 'archived file')}, for example {name} ({actual[name]:,} rows,"
            f" but the record says {expected[name]:,}). Nothing was written. Copy these files from"
            f" a backup of the lake into archive/{plan.table}/"
        )
    return archived_rows(session, facts.snapshot, plan.partitions)


def _checked_version(facts: TableFacts, operation: ArchiveOperation) -> int:
    """The version of the append, after its rows were compared with the record by partition."""
    table = facts.snapshot.table
    commits = [
        each for each in facts.history.commits if each.applications.get(APP_ID) == operation.number
    ]
    columns = by_name(facts.snapshot.columns)
    expected = Counter[object]()
    actual = Counter[object]()
    for partition in operation.partitions:
        expected[typed_partition(partition.values, columns)] += partition.row_count
    added = {path for commit in commits for path in commit.added_paths}
    for file in facts.snapshot.files:
        if file.path in added:
            actual[typed_partition(file.partition, columns)] += file.row_count or 0
    if actual != expected:
        raise Broken(
            f"restore of {table}: its commit added {actual.total():,} rows, the archived files have"
            f" {expected.total():,}, and the row counts of some partitions differ. Compare the"
            f" table with the files below archive/{table}/, which stay until the table's retention"
            " has passed"
        )
    return commits[0].version
