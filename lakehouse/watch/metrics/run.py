"""Reads a lake's metrics, without Spark, from logs, operations and Dagster's records; serves them.

If a table or a source cannot be read, its values are absent and a metric reports it. All other
values are still read.

An unknown value is absent, never 0. No label contains a run, a file or a partition, so the number
of series grows only with the number of tables.
Source: https://prometheus.io/docs/practices/naming/ and .../instrumenting/writing_exporters/

They are served over HTTP on loopback, or written as text. Counters begin at 0 with the process that
reads them; Prometheus handles such resets.

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
from pathlib import Path
from typing import TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Summary,
    disable_created_metrics,
    generate_latest,
    start_http_server,
)
from prometheus_client.core import GaugeMetricFamily
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

Families = Iterable[GaugeMetricFamily]

_LOG = logging.getLogger(__name__)

disable_created_metrics()

TABLE_LABELS = ("table", "layer")


@dataclass(frozen=True, slots=True)
class Metric:
    """A gauge: its full name, its help text, and the names of its labels."""

    name: str
    help: str
    labels: tuple[str, ...] = TABLE_LABELS


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
PREDICTION_ERROR = Metric(
    "lakehouse_operation_prediction_error_ratio",
    "Error of the newest prediction, as a share of the actual figure.",
    (*TABLE_LABELS, "operation", "figure"),
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


def labels_of(key: str) -> tuple[str, str]:
    """The labels `table` and `layer` of a table or another asset.

    The layer is the part of the key before the first slash.
    """
    return key, key.partition("/")[0]


class Counters:
    """Counts operations that ended after `since_ms`, each once, in the memory of a process."""

    def __init__(self, registry: CollectorRegistry, *, since_ms: int) -> None:
        self._since_ms = since_ms
        self._counted = set[tuple[str, str, str]]()
        kind = (*TABLE_LABELS, "operation")
        self._decisions = Counter(
            "lakehouse_decisions_total",
            "Operations that ended, by the reason of their plan.",
            (*kind, "reason"),
            registry=registry,
        )
        self._operations = Counter(
            "lakehouse_operations_total",
            "Operations that ended.",
            (*kind, "outcome"),
            registry=registry,
        )
        self._durations = Summary(
            "lakehouse_operation_duration_seconds",
            "Known durations of the operations that ended.",
            kind,
            registry=registry,
        )
        self._costs = Counter(
            "lakehouse_cost_usd_total",
            "Known costs of the operations that ended, by kind of operation.",
            (*TABLE_LABELS, "kind"),
            registry=registry,
        )

    def count(self, table: str, operations: Sequence[UpkeepOperation]) -> None:
        """Adds the operations that are new."""
        labels = labels_of(table)
        for kind in _KINDS:
            self._operations.labels(*labels, kind, "succeeded")
            self._operations.labels(*labels, kind, "failed")
            self._durations.labels(*labels, kind)
            self._costs.labels(*labels, kind)
        for each in operations:
            identity = (table, each.kind, each.operation_id)
            if each.ended_ms < self._since_ms or identity in self._counted:
                continue
            self._counted.add(identity)
            outcome = "succeeded" if each.result == "succeeded" else "failed"
            self._operations.labels(*labels, each.kind, outcome).inc()
            self._costs.labels(*labels, each.kind).inc(each.usd or 0.0)
            if each.reason:
                self._decisions.labels(*labels, each.kind, each.reason).inc()
            if each.seconds is not None:
                self._durations.labels(*labels, each.kind).observe(each.seconds)


class LakeCollector(Collector):
    """The gauges of a lake.

    A scrape starts a new reading if the last one ended, or failed, over `max_age_seconds` ago.
    """

    def __init__(self, read: Callable[[], Families], *, max_age_seconds: float) -> None:
        self._read = read
        self._max_age_seconds = max_age_seconds
        self._gauges: Families = ()
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
        return self._gauges

    def _refresh(self) -> None:
        try:
            self._gauges = self._read()
        except Exception:  # scrapes keep getting the older values
            _LOG.exception("the metrics cannot be read")
        with self._lock:
            self._due = time.monotonic() + self._max_age_seconds
            self._reading = None


def metrics_text(gauges: "Gauges") -> str:
    """The gauges in Prometheus' text format."""
    return generate_latest(gauges).decode()


def serve(
    read: "Callable[..., Gauges]", *, max_age_seconds: float, port: int
) -> Callable[[], None]:
    """Serves metrics at `http://127.0.0.1:<port>/metrics`; returns a function that stops this.

    `read` is `read_gauges`, called with the `counters` of this server.

    Raises:
        OSError: the port cannot be opened, for example because it is in use.
    """
    registry = CollectorRegistry()
    # Collectors are asked in this order, and a reading counts operations.
    registry.register(
        LakeCollector(lambda: read(counters=counters).collect(), max_age_seconds=max_age_seconds)
    )
    counters = Counters(registry, since_ms=now_ms())
    server, _ = start_http_server(port, addr="127.0.0.1", registry=registry)
    return server.shutdown


# Operations of this many past days are read, for counters and prediction errors.
_DAYS = 30
Value = TypeVar("Value")


class Gauges(Collector):
    """The gauges that were read. An unknown value (`None`) is omitted."""

    def __init__(self) -> None:
        self.families = dict[Metric, GaugeMetricFamily]()

    def collect(self) -> Families:
        """The gauges, as Prometheus' library asks for them."""
        return self.families.values()

    def add(self, metric: Metric, labels: Sequence[str], value: float | None) -> None:
        """Adds a value of a gauge."""
        if value is None:
            return
        if metric not in self.families:
            family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
            self.families[metric] = family
        self.families[metric].add_metric(labels, float(value))

    def source(self, name: str, read: Callable[[], Value]) -> Value | None:
        """The facts of a source about the whole lake; `None` if it cannot be read."""
        try:
            value = read()
        except (LakehouseError, OSError, sqlite3.Error):
            self.add(SOURCE_READABLE, (name,), 0)
            return None
        self.add(SOURCE_READABLE, (name,), 1)
        return value


def read_gauges(
    lake: Lake,
    tables: Iterable[Table],
    *,
    dagster_home: Path | None,
    counters: Counters | None = None,
) -> Gauges:
    """The present values of all gauges of a lake.

    `dagster_home` is the folder of Dagster's records, or `None` to omit their metrics. Operations
    are counted in `counters`.
    """
    gauges = Gauges()
    read_ms = now_ms()
    gauges.add(READ_AT, (), read_ms / 1000)
    declared = {table.key: table for table in tables}
    fleet = read_fleet(lake, declared, [*declared.values()])
    existing = dict[str, Table]()
    for found in fleet.tables:
        labels = labels_of(found.table.key)
        if found.error is not None:
            gauges.add(READABLE, labels, 0)
        elif found.value is not None:
            existing[found.table.key] = found.table
            gauges.add(READABLE, labels, 1)
            _add_table(gauges, labels, found.value, read_ms)
    for decision in fleet.decisions:
        if decision.table in existing:
            labels = (*labels_of(decision.table), "compaction", decision.reason.name)
            gauges.add(DECISION, labels, 1)
    _add_quarantines(gauges, lake, existing)
    since_ms = read_ms - _DAYS * DAY_MS
    operations = gauges.source("operations", lambda: _operations(lake, since_ms))
    if operations is not None:
        for key, table in existing.items():
            _add_operations(gauges, table, operations.get(key, ()), counters)
    inventories = gauges.source("inventory", lambda: known_inventories(lake))
    if inventories:
        gauges.add(INVENTORY, (), inventories[0].created_ms / 1000)
    if dagster_home is not None:
        _add_records(gauges, dagster_home, declared)
    return gauges


def _operations(lake: Lake, since_ms: int) -> Mapping[str, Sequence[UpkeepOperation]]:
    """The operations of each table, oldest first."""
    by_table = defaultdict[str, list[UpkeepOperation]](list)
    for operation in read_operations(lake, since_ms=since_ms):
        by_table[operation.table].append(operation)
    return by_table


def _add_table(gauges: Gauges, labels: Sequence[str], reading: TableReading, read_ms: int) -> None:
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
        gauges.add(metric, labels, value)
    gauges.add(BYTES, (*labels, "live"), health.size_bytes)
    gauges.add(BYTES, (*labels, "tombstoned"), health.tombstone_bytes)


def _seconds(ms: int | None) -> float | None:
    """A time in seconds, as Prometheus expects it."""
    return None if ms is None else ms / 1000


def _add_quarantines(gauges: Gauges, lake: Lake, existing: Mapping[str, Table]) -> None:
    landed = [table for table in existing.values() if table.source is not None]
    for found in for_each_table(landed, lambda table: quarantined_count(lake, table.key)):
        key = found.table.key
        gauges.add(QUARANTINED_ROWS, labels_of(key), found.value)
        if found.error is not None:
            gauges.add(READABLE, labels_of(quarantine_key(key)), 0)


def _add_operations(
    gauges: Gauges,
    table: Table,
    operations: Sequence[UpkeepOperation],
    counters: Counters | None,
) -> None:
    """Adds what the operations of a table show. They are ordered oldest first."""
    labels = labels_of(table.key)
    vacuums_ms = [each.started_ms for each in operations if each.kind == "vacuum"]
    if table.vacuum.mode == "automatic" and vacuums_ms:
        gauges.add(LAST_VACUUM, labels, _seconds(vacuums_ms[-1]))
    newest = {each.kind: each for each in operations if each.figures}
    for kind, operation in newest.items():
        for figure in operation.figures:
            gauges.add(PREDICTION_ERROR, (*labels, kind, figure.name), figure.error)
    if counters is not None:
        counters.count(table.key, operations)


def _add_records(gauges: Gauges, home: Path, declared: Mapping[str, Table]) -> None:
    """Adds Dagster's records, without checks of tables that are no longer declared.

    Such checks never run again, so their last results would be shown forever.
    """
    # The size is measured first, because opening a SQLite file may create further files.
    records = gauges.source("dagster", lambda: (folder_bytes(home), newest_checks(home)))
    size_bytes, checks = records or (0, None)
    if checks is None:
        return
    gauges.add(RECORDS_BYTES, (), size_bytes)
    for (asset, check), has_passed in checks.items():
        parts = asset.split("/")
        layer = parts[-2] if len(parts) > 1 else ""
        if layer not in LAYERS or "/".join(parts[-2:]) in declared:
            gauges.add(CHECK_PASSED, (*labels_of(asset), check), has_passed)
