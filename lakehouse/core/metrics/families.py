"""The metrics of a lake: names, labels and help texts, and their values from the facts.

An unknown value is absent, never 0. No label contains a run, a file or a partition, so the number
of series grows only with the number of tables.

At the first reading of a table, its counters include the operations of the seven past days. A
counter never decreases, because its totals are stored (`totals.py`).
Source: https://prometheus.io/docs/practices/naming/ and .../instrumenting/writing_exporters/
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from lakehouse.core.costs.operations import UpkeepOperation
from lakehouse.core.metrics.facts import DagsterRecords, MeasuredLake, MeasuredTable
from lakehouse.core.metrics.totals import TableTotals

_TABLE = ("table", "layer")
# The kinds of operation that every table may have.
_KINDS = ("compaction", "vacuum")


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric: its full name, its help text, the names of its labels, and its kind."""

    name: str
    help: str
    labels: tuple[str, ...] = _TABLE
    kind: Literal["gauge", "counter", "summary"] = "gauge"


@dataclass(frozen=True, slots=True)
class Sample:
    """A value of a metric, and the values of its labels.

    For a summary, `value` is the sum and `count` the number of observations.
    """

    metric: Metric
    labels: tuple[str, ...]
    value: float
    count: int = 0


FILES = Metric("lakehouse_table_files", "Live files.")
SMALL_FILES = Metric("lakehouse_table_small_files", "Live files that are small enough to compact.")
MERGEABLE_FILES = Metric("lakehouse_table_mergeable_files", "Files that a compaction would remove.")
ROWS = Metric("lakehouse_table_rows", "Rows, if the log counts them.")
BYTES = Metric(
    "lakehouse_table_bytes",
    "Bytes by part: live, tombstoned (removed, but still listed by the log), archived; orphaned, "
    "noncurrent and log, as of the newest inventory; multipart (unfinished uploads, on S3).",
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
    "Start of the newest vacuum, even if it deleted nothing. Absent unless vacuums are automatic.",
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
DECISIONS = Metric(
    "lakehouse_decisions_total",
    "Operations that ended, by the reason of their plan.",
    (*_TABLE, "operation", "reason"),
    "counter",
)
OPERATIONS = Metric(
    "lakehouse_operations_total",
    "Operations that ended.",
    (*_TABLE, "operation", "outcome"),
    "counter",
)
DURATION = Metric(
    "lakehouse_operation_duration_seconds",
    "Known durations of the operations that ended.",
    (*_TABLE, "operation"),
    "summary",
)
PREDICTION_ERROR = Metric(
    "lakehouse_operation_prediction_error_ratio",
    "Error of the newest prediction, as a share of the actual figure.",
    (*_TABLE, "operation", "figure"),
)
COST = Metric(
    "lakehouse_cost_usd_total",
    "Known costs of the operations that ended, by kind of operation.",
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
READ_SECONDS = Metric("lakehouse_metrics_read_seconds", "Duration of reading these metrics.", ())
BUILD_INFO = Metric("lakehouse_build_info", "1; the label is this program's version.", ("version",))

METRICS: tuple[Metric, ...] = (
    FILES,
    SMALL_FILES,
    MERGEABLE_FILES,
    ROWS,
    BYTES,
    HEALTH_SCORE,
    LOG_COMMITS,
    LAST_WRITE,
    LAST_COMPACTION,
    LAST_VACUUM,
    QUARANTINED_ROWS,
    PAUSED,
    READABLE,
    BUDGET,
    DECISION,
    CHECK_PASSED,
    DECISIONS,
    OPERATIONS,
    DURATION,
    PREDICTION_ERROR,
    COST,
    INVENTORY,
    RECORDS_BYTES,
    RECORDS_RUNS,
    SOURCE_READABLE,
    READ_AT,
    READ_SECONDS,
    BUILD_INFO,
)


def samples_of(lake: MeasuredLake) -> Iterator[Sample]:
    """The values of all metrics, in no particular order; unknown values are absent."""
    for table in lake.tables:
        yield from _of_table(table)
        if table.totals is not None:
            yield from _of_totals(table.table, table.totals)
        yield from _of_predictions(table.table, table.operations)
    if lake.dagster is not None:
        yield from _of_records(lake.dagster)
    yield from _known(INVENTORY, (), _seconds(lake.inventory_ms))
    for source, is_readable in lake.sources.items():
        yield Sample(SOURCE_READABLE, (source,), float(is_readable))
    yield Sample(READ_AT, (), lake.read_ms / 1000)
    yield Sample(READ_SECONDS, (), lake.seconds)
    yield Sample(BUILD_INFO, (lake.version,), 1.0)


def labels_of(key: str) -> tuple[str, str]:
    """The labels `table` and `layer` of a table or another asset.

    The layer is the part of the key before the first slash.
    """
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


def _of_totals(table: str, totals: TableTotals) -> Iterator[Sample]:
    """The table's counters.

    The counters of compactions and vacuums are shown even if they are zero: Prometheus' `increase`
    ignores the first value of a series, so it would not count the first operation otherwise.
    """
    labels = labels_of(table)
    counts: defaultdict[tuple[str, str], int] = defaultdict(int)
    for series, total in totals.totals.items():
        if series.reason:
            counts[series.kind, series.reason] += total.count
    for (kind, reason), count in counts.items():
        yield Sample(DECISIONS, (*labels, kind, reason), count)
    for kind in sorted({*_KINDS, *(series.kind for series in totals.totals)}):
        of_kind = {series: each for series, each in totals.totals.items() if series.kind == kind}
        ok_count = sum(each.count for series, each in of_kind.items() if series.is_ok)
        failed_count = sum(each.count for each in of_kind.values()) - ok_count
        seconds = sum(each.seconds for each in of_kind.values())
        timed_count = sum(each.timed_count for each in of_kind.values())
        yield Sample(OPERATIONS, (*labels, kind, "succeeded"), ok_count)
        yield Sample(OPERATIONS, (*labels, kind, "failed"), failed_count)
        yield Sample(DURATION, (*labels, kind), seconds, timed_count)
        yield Sample(COST, (*labels, kind), sum(each.usd for each in of_kind.values()))


def _of_predictions(table: str, operations: Sequence[UpkeepOperation]) -> Iterator[Sample]:
    """The prediction errors of the newest predicted operation of each kind."""
    # `operations` are ordered oldest first, so the newest of each kind remains in the dictionary.
    newest = {each.kind: each for each in operations if each.figures}
    for kind, operation in newest.items():
        for figure in operation.figures:
            labels = (*labels_of(table), kind, figure.name)
            yield from _known(PREDICTION_ERROR, labels, figure.error)


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
