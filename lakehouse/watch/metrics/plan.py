"""The metrics of a lake: names, labels and help texts, and counters of a process.

An unknown value is absent, never 0. No label contains a run, a file or a partition, so the number
of series grows only with the number of tables. Counters begin at 0 with the process that reads
them; Prometheus handles such resets.
Source: https://prometheus.io/docs/practices/naming/ and .../instrumenting/writing_exporters/
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from lakehouse.compact.plan.health import Health
from lakehouse.declare.upkeep_records import UpkeepOperation

_TABLE = ("table", "layer")
# The kinds of operation that every table may have. They are counted from 0 on, because Prometheus'
# `increase` ignores the first value of a series.
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
    "Bytes by part: live, tombstoned (removed, but still listed by the log); archived, orphaned, "
    "noncurrent and log, as of the newest inventory in costs/chargeback.",
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
READABLE = Metric("lakehouse_table_readable", "0 if the table's log or pause cannot be read.")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class DagsterRecords:
    """Dagster's own records: their size, the number of runs, and the newest result of each check.

    `checks` maps an asset (`bronze/weather`) and a check's name to whether the check passed.
    """

    size_bytes: int
    run_count: int | None = None
    checks: Mapping[tuple[str, str], bool] = field(default_factory=dict[tuple[str, str], bool])


# A metric and the values of its labels.
_Series = tuple[Metric, tuple[str, ...]]


class Counters:
    """Counts operations that ended after `since_ms`, each once, in the memory of a process."""

    def __init__(self, *, since_ms: int) -> None:
        self._since_ms = since_ms
        self._seen = dict[str, set[tuple[str, str]]]()
        self._sums = dict[str, dict[_Series, float]]()
        self._timed = Counter[_Series]()

    def count(self, table: str, operations: Sequence[UpkeepOperation]) -> Iterator[Sample]:
        """Adds the operations that are new, and returns all counters of the table."""
        labels = labels_of(table)
        if table not in self._sums:
            self._sums[table] = dict.fromkeys(_expected_series(labels), 0.0)
        sums = self._sums[table]
        seen = self._seen.get(table, set())
        for each in operations:
            if each.ended_ms >= self._since_ms and (each.kind, each.operation_id) not in seen:
                self._add(sums, labels, each)
        self._seen[table] = {(each.kind, each.operation_id) for each in operations}
        for (metric, values), number in sums.items():
            yield Sample(metric, values, number, self._timed[metric, values])

    def _add(
        self,
        sums: dict[_Series, float],
        labels: tuple[str, ...],
        operation: UpkeepOperation,
    ) -> None:
        of_kind = (*labels, operation.kind)
        outcome = "succeeded" if operation.result == "succeeded" else "failed"
        added: dict[_Series, float] = {
            (OPERATIONS, (*of_kind, outcome)): 1,
            (COST, of_kind): operation.usd or 0.0,
        }
        if operation.reason:
            added[DECISIONS, (*of_kind, operation.reason)] = 1
        if operation.seconds is not None:
            added[DURATION, of_kind] = operation.seconds
            self._timed[DURATION, of_kind] += 1
        for series, number in added.items():
            sums[series] = sums.get(series, 0.0) + number


def _expected_series(labels: tuple[str, ...]) -> Iterator[_Series]:
    """The counters that every table has, even before its first operation."""
    for kind in _KINDS:
        yield OPERATIONS, (*labels, kind, "succeeded")
        yield OPERATIONS, (*labels, kind, "failed")
        yield DURATION, (*labels, kind)
        yield COST, (*labels, kind)


def labels_of(key: str) -> tuple[str, str]:
    """The labels `table` and `layer` of a table or another asset.

    The layer is the part of the key before the first slash.
    """
    return key, key.partition("/")[0]


def health_samples(table: str, health: Health) -> Iterator[Sample]:
    """The values of a table's health."""
    labels = labels_of(table)
    yield Sample(FILES, labels, health.file_count)
    yield Sample(SMALL_FILES, labels, health.small_file_count)
    yield Sample(MERGEABLE_FILES, labels, health.mergeable_file_count)
    yield from known(ROWS, labels, health.row_count)
    yield Sample(BYTES, (*labels, "live"), health.size_bytes)
    yield Sample(BYTES, (*labels, "tombstoned"), health.tombstone_bytes)
    yield Sample(HEALTH_SCORE, labels, health.score)
    yield Sample(LOG_COMMITS, labels, health.log.commit_count)
    yield from known(LAST_WRITE, labels, in_seconds(health.committed_ms))


def prediction_samples(table: str, operations: Sequence[UpkeepOperation]) -> Iterator[Sample]:
    """The prediction errors of the newest predicted operation of each kind.

    `operations` are ordered oldest first.
    """
    newest = {each.kind: each for each in operations if each.figures}
    for kind, operation in newest.items():
        for figure in operation.figures:
            labels = (*labels_of(table), kind, figure.name)
            yield from known(PREDICTION_ERROR, labels, figure.error)


def record_samples(records: DagsterRecords) -> Iterator[Sample]:
    """The values of Dagster's own records."""
    yield Sample(RECORDS_BYTES, (), records.size_bytes)
    yield from known(RECORDS_RUNS, (), records.run_count)
    for (asset, check), has_passed in records.checks.items():
        yield Sample(CHECK_PASSED, (*labels_of(asset), check), float(has_passed))


def known(metric: Metric, labels: tuple[str, ...], value: float | None) -> Iterator[Sample]:
    """The sample, unless its value is unknown."""
    if value is not None:
        yield Sample(metric, labels, float(value))


def in_seconds(ms: int | None) -> float | None:
    """A time in seconds, as Prometheus expects it."""
    return None if ms is None else ms / 1000
