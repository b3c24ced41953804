"""Reads a lake's metrics, without Spark, from logs, operations and Dagster's records; serves them.

If a table or a source cannot be read, its values are absent and a metric reports it. All other
values are still read.

An unknown value is absent, never 0. No label contains a run, a file or a partition, so the number
of series grows only with the number of tables.
Source: https://prometheus.io/docs/practices/naming/ and .../instrumenting/writing_exporters/

They are served over HTTP on loopback, or written as text. Counters begin at 0 with the process that
serves them; Prometheus handles such resets. Each reading counts again from the lake's operations.

**Safety properties**
- A scrape waits at most `_WAIT_SECONDS` for a reading. After that time, it gets the values of the
  previous reading (none before the first one), and a metric shows their age.
- Only scrapes start readings, and at most one reading runs at a time.
"""

import logging
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from lakehouse.assets.home import folder_bytes, newest_checks
from lakehouse.base.clock import now_ms
from lakehouse.base.errors import LakehouseError
from lakehouse.base.operation import UpkeepOperation
from lakehouse.base.text import DAY_MS
from lakehouse.compact.assess import TableReading, read_fleet
from lakehouse.declare.policies import LAYERS
from lakehouse.declare.table import Table
from lakehouse.lake.lake import Lake, for_each_table
from lakehouse.lake.state_tables import read_operations
from lakehouse.land.ledger import quarantine_key, quarantined_count
from lakehouse.vacuum.inventory.run import known_inventories

# Less than the 10 seconds after which Prometheus, by default, gives up a scrape.
_WAIT_SECONDS = 8.0
# The kinds of operation that every table may have. They are counted from 0 on, because Prometheus'
# `increase` ignores the first value of a series.
_KINDS = ("compaction", "vacuum")

MetricFamily = GaugeMetricFamily | CounterMetricFamily
Families = Iterable[MetricFamily]

_LOG = logging.getLogger(__name__)

TABLE_LABELS = ("table", "layer")


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric: its full name, its help text, the names of its labels, and its type."""

    name: str
    help: str
    labels: tuple[str, ...] = TABLE_LABELS
    family: type[MetricFamily] = GaugeMetricFamily


FILES = Metric("lakehouse_table_files", "Live files.")
SMALL_FILES = Metric("lakehouse_table_small_files", "Live files that are small enough to compact.")
MERGEABLE_FILES = Metric("lakehouse_table_mergeable_files", "Files that a compaction would remove.")
ROWS = Metric("lakehouse_table_rows", "Rows, if the log counts them.")
BYTES = Metric(
    "lakehouse_table_bytes",
    "Bytes by part: live, or tombstoned (removed, but still listed by the log).",
    (*TABLE_LABELS, "part"),
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
    (*TABLE_LABELS, "operation", "reason"),
)
CHECK_PASSED = Metric(
    "lakehouse_check_passed",
    "1 if the newest result of the asset's check passed, else 0.",
    (*TABLE_LABELS, "check"),
)
INVENTORY = Metric(
    "lakehouse_inventory_snapshot_timestamp_seconds",
    "Time of the newest inventory that was loaded.",
    (),
)
RECORDS_BYTES = Metric("lakehouse_dagster_records_bytes", "Bytes of Dagster's own records.", ())
SOURCE_READABLE = Metric(
    "lakehouse_source_readable", "0 if a source about the whole lake cannot be read.", ("source",)
)
READ_AT = Metric("lakehouse_metrics_read_timestamp_seconds", "When these metrics were read.", ())
DECISIONS = Metric(
    "lakehouse_decisions_total",
    "Operations that ended, by the reason of their plan.",
    (*TABLE_LABELS, "operation", "reason"),
    CounterMetricFamily,
)
OPERATIONS = Metric(
    "lakehouse_operations_total",
    "Operations that ended.",
    (*TABLE_LABELS, "operation", "outcome"),
    CounterMetricFamily,
)
COSTS = Metric(
    "lakehouse_cost_usd_total",
    "Known costs of the operations that ended, by kind of operation.",
    (*TABLE_LABELS, "kind"),
    CounterMetricFamily,
)


def labels_of(key: str) -> tuple[str, str]:
    """The labels `table` and `layer` of a table or another asset.

    The layer is the part of the key before the first slash.
    """
    return key, key.partition("/")[0]


class LakeCollector(Collector):
    """The metrics of a lake.

    A scrape starts a new reading if the last one ended, or failed, over `max_age_seconds` ago.
    """

    def __init__(self, read: Callable[[], Families], *, max_age_seconds: float) -> None:
        self._read = read
        self._max_age_seconds = max_age_seconds
        self._metrics: Families = ()
        self._due = 0.0
        self._lock = threading.Lock()
        self._reading: threading.Thread | None = None

    def collect(self) -> Families:
        """The newest values. If they are too old, starts a reading and waits a while for it."""
        with self._lock:
            if self._reading is None and time.monotonic() >= self._due:
                self._reading = threading.Thread(target=self._refresh, daemon=True)
                self._reading.start()
            reading = self._reading
        if reading is not None:
            reading.join(_WAIT_SECONDS)
        return self._metrics

    def _refresh(self) -> None:
        try:
            self._metrics = self._read()
        except Exception:  # scrapes keep getting the older values
            _LOG.exception("the metrics cannot be read")
        with self._lock:
            self._due = time.monotonic() + self._max_age_seconds
            self._reading = None


def metrics_text(metrics: "Metrics") -> str:
    """The metrics in Prometheus' text format."""
    return generate_latest(metrics).decode()


def serve(read: "Callable[..., Metrics]", *, max_age_seconds: float, port: int) -> None:
    """Serves metrics at `http://127.0.0.1:<port>/metrics`, in a thread.

    `read` is `read_metrics`. Operations are counted from now on.

    Raises:
        OSError: the port cannot be opened, for example because it is in use.
    """
    read_now = partial(read, counted_since_ms=now_ms())
    registry = CollectorRegistry()
    registry.register(
        LakeCollector(lambda: [*read_now().collect()], max_age_seconds=max_age_seconds)
    )
    start_http_server(port, addr="127.0.0.1", registry=registry)


# Operations of this many past days are read, for the time of the last vacuum.
_DAYS = 30
Value = TypeVar("Value")


class Metrics(Collector):
    """The metrics of one reading. An unknown value (`None`) is omitted."""

    def __init__(self) -> None:
        self._values = dict[Metric, dict[tuple[str, ...], float]]()

    def collect(self) -> Families:
        """The metrics, as Prometheus' library asks for them."""
        for metric, values in self._values.items():
            family = metric.family(metric.name, metric.help, labels=metric.labels)
            for labels, value in values.items():
                family.add_metric(labels, value)
            yield family

    def add(self, metric: Metric, labels: Sequence[str], value: float | None) -> None:
        """Adds a value of a gauge, or increases a counter."""
        if value is not None:
            values = self._values.setdefault(metric, {})
            key = tuple(labels)
            values[key] = values.get(key, 0) + value

    def source(self, name: str, read: Callable[[], Value]) -> Value | None:
        """The facts of a source about the whole lake; `None` if it cannot be read."""
        try:
            value = read()
        except (LakehouseError, OSError, sqlite3.Error):
            self.add(SOURCE_READABLE, (name,), 0)
            return None
        self.add(SOURCE_READABLE, (name,), 1)
        return value


def read_metrics(
    lake: Lake,
    tables: Iterable[Table],
    *,
    dagster_home: Path,
    counted_since_ms: int | None = None,
) -> Metrics:
    """The present values of all gauges of a lake.

    `dagster_home` is the folder of Dagster's records. Operations that ended at `counted_since_ms`
    or later are counted; without it, there are no counters.
    """
    metrics = Metrics()
    read_ms = now_ms()
    metrics.add(READ_AT, (), read_ms / 1000)
    declared = {table.key: table for table in tables}
    fleet = read_fleet(lake, declared, [*declared.values()])
    existing = dict[str, Table]()
    for found in fleet.tables:
        labels = labels_of(found.table.key)
        if found.error is not None:
            metrics.add(READABLE, labels, 0)
        elif found.value is not None:
            existing[found.table.key] = found.table
            metrics.add(READABLE, labels, 1)
            _add_table(metrics, labels, found.value, read_ms)
    for decision in fleet.decisions:
        if decision.table in existing:
            labels = (*labels_of(decision.table), "compaction", decision.reason.name)
            metrics.add(DECISION, labels, 1)
    _add_quarantines(metrics, lake, existing)
    since_ms = min(read_ms - _DAYS * DAY_MS, counted_since_ms or read_ms)
    operations = metrics.source("operations", lambda: _operations(lake, since_ms))
    if operations is not None:
        for key, table in existing.items():
            _add_operations(metrics, table, operations.get(key, ()), counted_since_ms)
    inventories = metrics.source("inventory", lambda: known_inventories(lake))
    if inventories:
        metrics.add(INVENTORY, (), inventories[0].created_ms / 1000)
    _add_records(metrics, dagster_home, declared)
    return metrics


def _operations(lake: Lake, since_ms: int) -> Mapping[str, Sequence[UpkeepOperation]]:
    """The operations of each table, oldest first."""
    by_table = defaultdict[str, list[UpkeepOperation]](list)
    for operation in read_operations(lake, since_ms=since_ms):
        by_table[operation.table].append(operation)
    return by_table


def _add_table(
    metrics: Metrics, labels: Sequence[str], reading: TableReading, read_ms: int
) -> None:
    health = reading.health
    pause = reading.known.pause
    values = {
        FILES: health.file_count,
        SMALL_FILES: health.small_file_count,
        MERGEABLE_FILES: health.mergeable_file_count,
        ROWS: health.row_count,
        HEALTH_SCORE: health.score,
        LOG_COMMITS: health.log.commit_count,
        LAST_WRITE: _seconds(health.committed_ms),
        LAST_COMPACTION: _seconds(reading.known.state.last_compaction_ms),
        PAUSED: pause is not None and pause.holds(read_ms),
    }
    for metric, value in values.items():
        metrics.add(metric, labels, value)
    metrics.add(BYTES, (*labels, "live"), health.size_bytes)
    metrics.add(BYTES, (*labels, "tombstoned"), health.tombstone_bytes)


def _seconds(ms: int | None) -> float | None:
    """A time in seconds, as Prometheus expects it."""
    return None if ms is None else ms / 1000


def _add_quarantines(metrics: Metrics, lake: Lake, existing: Mapping[str, Table]) -> None:
    landed = [table for table in existing.values() if table.source is not None]
    for found in for_each_table(landed, lambda table: quarantined_count(lake, table.key)):
        key = found.table.key
        metrics.add(QUARANTINED_ROWS, labels_of(key), found.value)
        if found.error is not None:
            metrics.add(READABLE, labels_of(quarantine_key(key)), 0)


def _add_operations(
    metrics: Metrics,
    table: Table,
    operations: Sequence[UpkeepOperation],
    counted_since_ms: int | None,
) -> None:
    """Adds the last vacuum of a table, and counts its operations. They are ordered oldest first."""
    labels = labels_of(table.key)
    vacuums_ms = [each.started_ms for each in operations if each.kind == "vacuum"]
    if table.vacuum.mode == "automatic" and vacuums_ms:
        metrics.add(LAST_VACUUM, labels, _seconds(vacuums_ms[-1]))
    if counted_since_ms is None:
        return
    for kind in _KINDS:
        for outcome in ("succeeded", "failed"):
            metrics.add(OPERATIONS, (*labels, kind, outcome), 0)
        metrics.add(COSTS, (*labels, kind), 0)
    for each in operations:
        if each.ended_ms < counted_since_ms:
            continue
        outcome = "succeeded" if each.result == "succeeded" else "failed"
        metrics.add(OPERATIONS, (*labels, each.kind, outcome), 1)
        metrics.add(COSTS, (*labels, each.kind), each.usd)
        if each.reason:
            metrics.add(DECISIONS, (*labels, each.kind, each.reason), 1)


def _add_records(metrics: Metrics, home: Path, declared: Mapping[str, Table]) -> None:
    """Adds Dagster's records, without checks of tables that are no longer declared.

    Such checks never run again, so their last results would be shown forever.
    """
    # The size is measured first, because opening a SQLite file may create further files.
    records = metrics.source("dagster", lambda: (folder_bytes(home), newest_checks(home)))
    size_bytes, checks = records or (0, None)
    if checks is None:
        return
    metrics.add(RECORDS_BYTES, (), size_bytes)
    for (asset, check), has_passed in checks.items():
        parts = asset.split("/")
        layer = parts[-2] if len(parts) > 1 else ""
        if layer not in LAYERS or "/".join(parts[-2:]) in declared:
            metrics.add(CHECK_PASSED, (*labels_of(asset), check), has_passed)
