"""The metrics of a lake: names, labels and help texts, and their values from the facts.

A value that is unknown is absent, and never 0. No label holds a run, a file or a partition, so the
number of series grows with the number of tables only.

Logs and journals forget old operations. So counters count since midnight UTC: every day they start
again, as after a restart, which `rate` and `increase` allow for. A restart of this program changes
nothing. An operation is not counted if it ends after the last reading before midnight, or if a
cleanup of logs removes it on the same day.
Source: https://prometheus.io/docs/practices/naming/ and .../instrumenting/writing_exporters/
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from lakehouse.core.costs.operations import UpkeepOperation
from lakehouse.core.metrics.facts import DagsterRecords, MeasuredLake, MeasuredTable
from lakehouse.core.units import DAY_MS

_TABLE = ("table", "layer")
# Every table may have these.
_KINDS = ("compaction", "vacuum")


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric: its full name, what it says, and the names of its labels."""

    name: str
    help: str
    labels: tuple[str, ...] = _TABLE
    kind: Literal["gauge", "counter", "summary"] = "gauge"


@dataclass(frozen=True, slots=True)
class Sample:
    """A value of a metric, with the values of its labels; of a summary, the sum and the count."""

    metric: Metric
    labels: tuple[str, ...]
    value: float
    count: int = 0


FILES = Metric("lakehouse_table_files", "Live files.")
SMALL_FILES = Metric("lakehouse_table_small_files", "Live files below the size of candidates.")
MERGEABLE_FILES = Metric("lakehouse_table_mergeable_files", "Files a compaction would remove.")
ROWS = Metric("lakehouse_table_rows", "Rows, if the log counts them.")
BYTES = Metric(
    "lakehouse_table_bytes",
    "Bytes by part: live, tombstoned (removed, while the log still lists them), archived; orphaned,"
    " noncurrent and log by the newest inventory; multipart (unfinished uploads, on S3).",
    (*_TABLE, "part"),
)
HEALTH_SCORE = Metric("lakehouse_table_health_score", "Health, from 0 (bad) to 100.")
LOG_COMMITS = Metric("lakehouse_table_log_commits", "Commits since the newest checkpoint.")
LAST_WRITE = Metric("lakehouse_table_last_commit_timestamp_seconds", "Time of the newest commit.")
LAST_COMPACTION = Metric(
    "lakehouse_table_last_compaction_timestamp_seconds",
    "End of the newest compaction that the log still records.",
)
LAST_VACUUM = Metric(
    "lakehouse_table_last_vacuum_timestamp_seconds",
    "Start of the newest vacuum, if vacuums are automatic; whether or not it deleted anything.",
)
QUARANTINED_ROWS = Metric("lakehouse_quarantined_rows", "Rejected records in quarantine.")
PAUSED = Metric("lakehouse_table_paused", "1 while a person has paused the upkeep, else 0.")
READABLE = Metric("lakehouse_table_readable", "0 if the table's log or journal cannot be read.")
BUDGET = Metric("lakehouse_table_budget_usd_per_month", "The declared budget.")
DECISION = Metric(
    "lakehouse_table_decision",
    "1 for the reason why the table would, or would not, be compacted now.",
    (*_TABLE, "operation", "reason"),
)
CHECK_PASSED = Metric(
    "lakehouse_check_passed",
    "1 if the newest result of the asset's check passed, else 0.",
    (*_TABLE, "check"),
)
OPERATIONS = Metric(
    "lakehouse_operations_total",
    "Operations that ended since midnight UTC, when the count starts again.",
    (*_TABLE, "operation", "outcome"),
    "counter",
)
DURATION = Metric(
    "lakehouse_operation_duration_seconds",
    "Durations of the operations that ended since midnight UTC.",
    (*_TABLE, "operation"),
    "summary",
)
PREDICTION_ERROR = Metric(
    "lakehouse_operation_prediction_error_ratio",
    "How far the newest prediction was off, as a share of the actual figure.",
    (*_TABLE, "operation", "figure"),
)
COST = Metric(
    "lakehouse_cost_usd_total",
    "Cost of the operations that ended since midnight UTC, by their kind.",
    (*_TABLE, "kind"),
    "counter",
)
INVENTORY = Metric(
    "lakehouse_inventory_snapshot_timestamp_seconds",
    "Time of the newest inventory that was loaded.",
    (),
)
RECORDS_BYTES = Metric("lakehouse_dagster_records_bytes", "Bytes of Dagster's own records.", ())
RECORDS_RUNS = Metric("lakehouse_dagster_runs", "Runs in Dagster's own records.", ())
SOURCE_READABLE = Metric(
    "lakehouse_source_readable", "0 if a source about the whole lake cannot be read.", ("source",)
)
READ_AT = Metric("lakehouse_metrics_read_timestamp_seconds", "When these metrics were read.", ())
READ_SECONDS = Metric("lakehouse_metrics_read_seconds", "How long it took to read them.", ())
BUILD_INFO = Metric("lakehouse_build_info", "1, with the version of this program.", ("version",))

METRICS: tuple[Metric, ...] = (
    *(FILES, SMALL_FILES, MERGEABLE_FILES, ROWS, BYTES, HEALTH_SCORE, LOG_COMMITS, LAST_WRITE),
    *(LAST_COMPACTION, LAST_VACUUM, QUARANTINED_ROWS, PAUSED, READABLE, BUDGET, DECISION),
    *(CHECK_PASSED, OPERATIONS, DURATION, PREDICTION_ERROR, COST, INVENTORY, RECORDS_BYTES),
    *(RECORDS_RUNS, SOURCE_READABLE, READ_AT, READ_SECONDS, BUILD_INFO),
)


def samples_of(lake: MeasuredLake) -> Iterator[Sample]:
    """The values of all metrics, in no particular order; unknown values are absent."""
    midnight_ms = lake.read_ms - lake.read_ms % DAY_MS
    for table in lake.tables:
        yield from _of_table(table)
        if table.operations is not None:
            yield from _of_operations(table.table, table.operations, midnight_ms)
    if lake.dagster is not None:
        yield from _of_records(lake.dagster)
    yield from _known(INVENTORY, (), _seconds(lake.inventory_ms))
    for source, is_readable in lake.sources.items():
        yield Sample(SOURCE_READABLE, (source,), float(is_readable))
    yield Sample(READ_AT, (), lake.read_ms / 1000)
    yield Sample(READ_SECONDS, (), lake.seconds)
    yield Sample(BUILD_INFO, (lake.version,), 1.0)


def labels_of(key: str) -> tuple[str, str]:
    """The labels of a table or another asset: its key, and the part before the first slash."""
    return key, key.partition("/")[0]


def _of_table(table: MeasuredTable) -> Iterator[Sample]:
    labels = labels_of(table.table)
    yield from _known(BUDGET, labels, table.budget_usd_per_month)
    if not table.is_readable:
        yield Sample(READABLE, labels, 0.0)
        return
    if not table.exists:
        return
    yield Sample(READABLE, labels, 1.0)
    yield from _known(LAST_COMPACTION, labels, _seconds(table.last_compaction_ms))
    yield from _known(LAST_VACUUM, labels, _seconds(table.last_vacuum_ms))
    yield from _known(QUARANTINED_ROWS, labels, table.quarantined_rows)
    yield from _known(PAUSED, labels, table.is_paused)
    yield from _known(BYTES, (*labels, "archived"), table.archived_bytes)
    for part, size_bytes in table.other_bytes.items():
        yield Sample(BYTES, (*labels, part), size_bytes)
    if table.decision:
        yield Sample(DECISION, (*labels, "compaction", table.decision), 1.0)
    health = table.health
    if health is None:
        return
    yield Sample(FILES, labels, health.file_count)
    yield Sample(SMALL_FILES, labels, health.small_file_count)
    yield Sample(MERGEABLE_FILES, labels, health.mergeable_file_count)
    yield from _known(ROWS, labels, health.row_count)
    yield Sample(BYTES, (*labels, "live"), health.size_bytes)
    yield Sample(BYTES, (*labels, "tombstoned"), health.tombstone_bytes)
    yield Sample(HEALTH_SCORE, labels, health.score)
    yield Sample(LOG_COMMITS, labels, health.log.commit_count)
    yield from _known(LAST_WRITE, labels, _seconds(health.committed_ms))


def _of_operations(
    table: str, operations: Sequence[UpkeepOperation], midnight_ms: int
) -> Iterator[Sample]:
    """Counts since midnight, and the newest predictions.

    Zeros of expected kinds are included, since `increase` ignores the first value of a series.
    """
    labels = labels_of(table)
    for kind in sorted({*_KINDS, *(each.kind for each in operations)}):
        of_kind = [each for each in operations if each.kind == kind]
        today = [each for each in of_kind if each.ended_ms >= midnight_ms]
        ok_count = sum(each.is_ok for each in today)
        yield Sample(OPERATIONS, (*labels, kind, "succeeded"), ok_count)
        yield Sample(OPERATIONS, (*labels, kind, "failed"), len(today) - ok_count)
        seconds = [each.seconds for each in today if each.seconds is not None]
        yield Sample(DURATION, (*labels, kind), sum(seconds), len(seconds))
        yield Sample(COST, (*labels, kind), sum(each.usd or 0.0 for each in today))
        newest = next((each for each in reversed(of_kind) if each.figures), None)
        for figure in newest.figures if newest else ():
            yield from _known(PREDICTION_ERROR, (*labels, kind, figure.name), figure.error)


def _of_records(records: DagsterRecords) -> Iterator[Sample]:
    yield Sample(RECORDS_BYTES, (), records.size_bytes)
    yield from _known(RECORDS_RUNS, (), records.run_count)
    for (asset, check), has_passed in records.checks.items():
        yield Sample(CHECK_PASSED, (*labels_of(asset), check), float(has_passed))


def _known(metric: Metric, labels: tuple[str, ...], value: float | None) -> Iterator[Sample]:
    """The sample, unless its value is unknown."""
    if value is not None:
        yield Sample(metric, labels, float(value))


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000
