"""Loads inventory reports into `inventory/<bucket>`, a table with one partition per day.

A report that was loaded last is only reconciled. For any other report:

1. The table's lock is taken. Leftovers of an earlier load in the staging folder are removed.
2. The keys of the report are read, to find the tables whose logs are needed. Then its rows are read
   and reconciled with these logs. Each row is written to Parquet files in the staging folder, with
   the table that it belongs to. Each data file of the report is verified whenever it is read.
3. Spark reads these files and overwrites only the partition of the report's bucket and day, in one
   commit that names the report. A report without rows is not written.
4. The staging folder is emptied.

**Safety properties** (tests in `test_reports_table.py`)
- A report that is refused, even at its last row, changes nothing in the table.
- If a day is loaded twice, or from two reports, the table has only the rows of the last load (of a
  report with rows).
- Only files in the staging folder are deleted, and only the holder of the lock writes there.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakehouse.core.check_result import CheckResult
from lakehouse.core.declaration.table import Table
from lakehouse.core.inventory.checks import (
    Load,
    assess_complete,
    assess_fresh,
    assess_missing,
    assess_plausible,
    assess_readable,
    loads_of,
)
from lakehouse.core.inventory.objects import StoredObject
from lakehouse.core.inventory.reconcile import Reconciliation
from lakehouse.core.inventory.report_manifest import DataPart, Report
from lakehouse.engine.compaction.noted_files import note_cold_files
from lakehouse.engine.delta_log import TableFacts
from lakehouse.engine.inventory.reconcile_lake import TableOf, reconcile_report
from lakehouse.engine.inventory.scan import BATCH_ROWS, RowFiles
from lakehouse.engine.inventory.stored_reports import REPORTS, hours_allowed
from lakehouse.engine.lake import Lake
from lakehouse.engine.retry_conflicts import retry_conflicts
from lakehouse.engine.spark.delta_writes import FrameWrite, write_frame
from lakehouse.engine.spark.errors import translated
from lakehouse.engine.spark.temporary_confs import PARTITIONS_OVERWRITTEN, session_confs
from lakehouse.engine.table_lock import hold

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITION_COLUMNS = ("bucket", "report_day")
_FLAGS = ("is_dir", "is_latest", "is_delete_marker", "multipart")
_COLUMNS = (
    "bucket",
    "key",
    "size_bytes",
    "modified_ms",
    "is_dir",
    "storage_class",
    "archive_tier",
    "is_latest",
    "is_delete_marker",
    "version_id",
    "encryption",
    "multipart",
    "checksum_algorithm",
    "owner",
)
_TYPES = {"size_bytes": pa.int64(), "modified_ms": pa.int64()} | dict.fromkeys(_FLAGS, pa.bool_())
_SCHEMA = pa.schema(
    [
        *(pa.field(name, _TYPES.get(name, pa.string())) for name in _COLUMNS),
        pa.field("lake_table", pa.string()),
        pa.field("report", pa.string()),
        pa.field("report_day", pa.date32()),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryOutcome:
    """A report and its reconciliation with the logs.

    `before` is the newest load of another report, if the table's log still records one. `row_count`
    is the number of rows that the table has for the report's day, according to its log (`None` if
    unknown; 0 for a report without rows). `newly_loaded` is the number of rows that this run
    loaded.
    """

    report: Report
    reconciliation: Reconciliation
    load: Load
    before: Load | None
    row_count: int | None
    newly_loaded: int
    version: int | None
    seconds: float


def inventory_table(bucket: str) -> str:
    """The key of the inventory table of a bucket."""
    return f"inventory/{bucket}"


def load_report(
    lake: Lake,
    report: Report,
    declared: Iterable[Table],
    *,
    spark: "Callable[[], SparkSession]",
    now_ms: int,
    owner: str,
) -> InventoryOutcome:
    """Reconciles a report, and loads it unless it was the last report loaded.

    On S3, also notes the tables' cold files (`engine.compaction.noted_files`).

    Raises:
        Refused: the report cannot be trusted; the table is unchanged.
        Transient: another process holds the table, or the server does not answer.
    """
    began = time.monotonic()
    key = inventory_table(lake.store.bucket)
    recorded_loads = _recorded_loads(lake.facts(key))
    newly_loaded = 0
    if recorded_loads and recorded_loads[0].report == report.name:
        reconciliation = reconcile_report(lake, declared, report, now_ms=now_ms)
        load = _load_record(report, reconciliation)
    else:
        session = spark()
        with (
            hold(lake, session, key, owner=owner),
            translated(),
            session_confs(session, {PARTITIONS_OVERWRITTEN: "dynamic"}),
        ):
            _clear(lake)
            files = RowFiles(lake.store, _staging(lake), _SCHEMA)
            reconciliation = reconcile_report(
                lake, declared, report, now_ms=now_ms, observe=partial(_write_rows, files, report)
            )
            load = _load_record(report, reconciliation)
            newly_loaded = load.object_count
            if newly_loaded:
                parts = files.finish()
                retry_conflicts(partial(_overwrite, lake, session, key, parts, load))
            _clear(lake)
    if lake.settings.on_s3:
        note_cold_files(lake, reconciliation)
    after = lake.facts(key)
    earlier_loads = [each for each in _recorded_loads(after) if each.report != report.name]
    row_count = 0
    # An empty report is not written, so the day may still have the rows of an earlier report.
    if load.object_count:
        row_count = _rows_of_day(after, report)
    return InventoryOutcome(
        report=report,
        reconciliation=reconciliation,
        load=load,
        before=earlier_loads[0] if earlier_loads else None,
        row_count=row_count,
        newly_loaded=newly_loaded,
        version=None if after is None else after.snapshot.version,
        seconds=time.monotonic() - began,
    )


def report_day(report: Report) -> date:
    """The day on which the listing began, UTC."""
    return datetime.fromtimestamp(report.created_ms / 1_000, tz=UTC).date()


def judge(lake: Lake, outcome: InventoryOutcome, *, now_ms: int) -> tuple[CheckResult, ...]:
    """The result of each check in `core.inventory.checks.CHECKS`."""
    allowed = hours_allowed(lake.store, outcome.report)
    return (
        assess_complete(outcome.load, outcome.row_count),
        assess_fresh(outcome.load, allowed=allowed, now_ms=now_ms),
        assess_plausible(outcome.load, outcome.before),
        assess_missing(outcome.reconciliation),
        assess_readable(outcome.reconciliation, address=lake.settings.root),
    )


def _clear(lake: Lake) -> None:
    """Removes everything in the staging folder, including leftovers of killed writes."""
    names = (
        each.key.removeprefix(lake.store.prefix)
        for each in lake.store.walk(_staging(lake))
        if not each.key.endswith("/")
    )
    lake.store.delete([*names])


def _staging(lake: Lake) -> str:
    # A bucket name never begins with an underscore, so this folder never contains reports.
    return f"{REPORTS}/_loading/{lake.store.bucket}"


def _write_rows(
    files: RowFiles, report: Report, objects: Iterator[StoredObject], table_of: TableOf
) -> Iterator[StoredObject]:
    """Writes each object to `files`, and yields it again."""
    while batch := list(islice(objects, BATCH_ROWS)):
        files.add(_rows(batch, table_of, report))
        yield from batch


def _rows(batch: Sequence[StoredObject], table_of: TableOf, report: Report) -> pa.RecordBatch:
    columns: dict[str, list[Any]] = {
        name: [getattr(each, name) for each in batch] for name in _COLUMNS
    }
    columns["lake_table"] = [table_of(each) for each in batch]
    columns["report"] = [report.name] * len(batch)
    columns["report_day"] = [report_day(report)] * len(batch)
    return pa.RecordBatch.from_pydict(columns, schema=_SCHEMA)


def _overwrite(
    lake: Lake, spark: "SparkSession", key: str, files: Sequence[DataPart], load: Load
) -> None:
    """Replaces the partition of the report's day, if the session sets `PARTITIONS_OVERWRITTEN`."""
    names = [file.key.removeprefix(lake.store.prefix) for file in files]
    frame = spark.read.parquet(*[f"{lake.settings.spark_root}/{name}" for name in names])
    write = FrameWrite(
        mode="overwrite", partition_by=PARTITION_COLUMNS, user_metadata=load.as_text()
    )
    write_frame(frame, lake.settings.table_uri(key), write)


def _load_record(report: Report, reconciliation: Reconciliation) -> Load:
    return Load(
        report=report.name,
        created_ms=report.created_ms,
        object_count=reconciliation.file_count,
        size_bytes=reconciliation.size_bytes,
    )


def _recorded_loads(facts: TableFacts | None) -> list[Load]:
    """The loads that the inventory table's log records, newest first."""
    return [] if facts is None else list(loads_of(facts.history))


def _rows_of_day(facts: TableFacts | None, report: Report) -> int | None:
    """The rows of the report's day; `None` if the log lacks the row count of a file."""
    if facts is None:
        return 0
    partition = {"bucket": report.bucket, "report_day": report_day(report).isoformat()}
    row_count = 0
    for file in facts.snapshot.files:
        if dict(file.partition) != partition:
            continue
        if file.row_count is None:
            return None
        row_count += file.row_count - file.deleted_row_count
    return row_count
