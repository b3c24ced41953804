"""Loads inventory reports into `inventory/<bucket>`, a table with one partition per day.

1. The table's lock is taken. Leftovers of an earlier load in the staging folder are removed.
2. The report is read once and verified on the way. Its rows are reconciled with the tables' logs
   and written to Parquet files in the staging folder. Each row gets the table that it belongs to.
3. Spark reads these files and overwrites only the partition of the report's bucket and day, in one
   commit that names the report.
4. The staging folder is emptied.

**Safety properties** (tests in `test_reports_table.py`)
- A report that is refused, even at its last row, changes nothing in the table.
- If a day is loaded twice, or from two reports, the table has only the rows of the last load.
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

from lakehouse.core.checks import CheckResult
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
from lakehouse.core.inventory.expired_scans import stamp_ms
from lakehouse.core.inventory.objects import StoredObject
from lakehouse.core.inventory.reconcile import Reconciliation
from lakehouse.core.inventory.report_manifest import DataPart, Report, allowed_hours
from lakehouse.engine.delta_log import TableFacts
from lakehouse.engine.inventory.parquet_files import BATCH_ROWS, RowFiles
from lakehouse.engine.inventory.reconcile_lake import FindOwner, reconcile_report
from lakehouse.engine.inventory.stored_reports import REPORTS, SCAN, stamps_of
from lakehouse.engine.lake import Lake
from lakehouse.engine.retry_conflicts import retry_conflicts
from lakehouse.engine.spark.delta_writes import FrameWrite, write_frame
from lakehouse.engine.spark.errors import translated
from lakehouse.engine.spark.temporary_confs import PARTITIONS_OVERWRITTEN, session_confs
from lakehouse.engine.table_lock import hold
from lakehouse.engine.tiers.cold_files import record_cold_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITION_COLUMNS = ("bucket", "report_day")
_FLAGS = ("is_dir", "is_latest", "is_delete_marker", "multipart")
_COLUMNS = (
    *(
        "bucket",
        "key",
        "size_bytes",
        "modified_ms",
        "is_dir",
        "storage_class",
        "archive_tier",
        "is_latest",
        "is_delete_marker",
    ),
    *("version_id", "encryption", "multipart", "checksum_algorithm", "owner"),
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

    `before` is the report that was loaded previously, if the table's log still records it.
    `row_count` is the number of rows that the table has for the report's day, according to its log
    (`None` if unknown). `newly_loaded` is the number of rows that this run loaded.
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

    Raises:
        Refused: the report cannot be trusted; the table is unchanged.
        Transient: another process holds the table, or the server does not answer.
    """
    began = time.monotonic()
    key = inventory_table(lake.store.bucket)
    known = _loads(lake.facts(key))
    newly_loaded = 0
    if known and known[0].report == report.name:
        reconciliation = reconcile_report(lake, declared, report, now_ms=now_ms)
        load = _load(report, reconciliation)
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
                lake, declared, report, now_ms=now_ms, through=partial(_through, files, report)
            )
            load = _load(report, reconciliation)
            newly_loaded = load.object_count
            if newly_loaded:
                retry_conflicts(partial(_overwrite, lake, session, key, files.finish(), load))
            _clear(lake)
    if lake.settings.on_s3:
        record_cold_files(lake, reconciliation)
    after = lake.facts(key)
    return InventoryOutcome(
        report=report,
        reconciliation=reconciliation,
        load=load,
        before=next((each for each in _loads(after) if each.report != report.name), None),
        row_count=_rows_of_day(after, report) if load.object_count else 0,
        newly_loaded=newly_loaded,
        version=None if after is None else after.snapshot.version,
        seconds=time.monotonic() - began,
    )


def report_day(report: Report) -> date:
    """The day on which the listing began, UTC."""
    return datetime.fromtimestamp(report.created_ms / 1_000, tz=UTC).date()


def judge(lake: Lake, outcome: InventoryOutcome, *, now_ms: int) -> tuple[CheckResult, ...]:
    """The result of each check in `core.inventory.checks.CHECKS`."""
    report = outcome.report
    earlier = (
        stamp
        for name, stamp in stamps_of(lake.store)
        if name == report.configuration and f"{name}/{stamp}" < report.name
    )
    allowed = allowed_hours(
        report.created_ms, stamp_ms(next(earlier, "")), own=report.configuration == SCAN
    )
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


def _through(
    files: RowFiles, report: Report, objects: Iterator[StoredObject], owner: FindOwner
) -> Iterator[StoredObject]:
    """Yields the same objects, and also writes each of them to `files`."""
    while batch := list(islice(objects, BATCH_ROWS)):
        files.add(_rows(batch, owner, report))
        yield from batch


def _rows(batch: Sequence[StoredObject], owner: FindOwner, report: Report) -> pa.RecordBatch:
    columns: dict[str, list[Any]] = {
        name: [getattr(each, name) for each in batch] for name in _COLUMNS
    }
    columns["lake_table"] = [owner(each) for each in batch]
    columns["report"] = [report.name] * len(batch)
    columns["report_day"] = [report_day(report)] * len(batch)
    return pa.RecordBatch.from_pydict(columns, schema=_SCHEMA)


def _overwrite(
    lake: Lake, spark: "SparkSession", key: str, files: Sequence[DataPart], load: Load
) -> None:
    frame = spark.read.parquet(
        *(
            f"{lake.settings.spark_root}/{file.key.removeprefix(lake.store.prefix)}"
            for file in files
        )
    )
    write = FrameWrite(
        mode="overwrite", partition_by=PARTITION_COLUMNS, user_metadata=load.as_text()
    )
    write_frame(frame, lake.settings.table_uri(key), write)


def _load(report: Report, reconciliation: Reconciliation) -> Load:
    return Load(
        report=report.name,
        created_ms=report.created_ms,
        object_count=reconciliation.file_count,
        size_bytes=reconciliation.size_bytes,
    )


def _loads(facts: TableFacts | None) -> list[Load]:
    return [] if facts is None else list(loads_of(facts.history))


def _rows_of_day(facts: TableFacts | None, report: Report) -> int | None:
    wanted = {"bucket": report.bucket, "report_day": report_day(report).isoformat()}
    files = (
        []
        if facts is None
        else [file for file in facts.snapshot.files if dict(file.partition) == wanted]
    )
    counts = [
        None if file.row_count is None else file.row_count - file.deleted_row_count
        for file in files
    ]
    return None if None in counts else sum(count or 0 for count in counts)
