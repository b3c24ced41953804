"""Reads a lake's metrics, without Spark, from logs, operations and Dagster's records; serves them.

If a table or a source cannot be read, its values are absent and a metric reports it. All other
values are still read.

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
from lakehouse.base.text import DAY_MS
from lakehouse.compact.assess import TableReading, read_fleet
from lakehouse.declare.policies import LAYERS
from lakehouse.declare.table import Table
from lakehouse.declare.upkeep_records import UpkeepOperation
from lakehouse.lake.find_tables import for_each_table
from lakehouse.lake.lake import Lake
from lakehouse.lake.state_tables import read_operations
from lakehouse.land.ledger import quarantine_key, quarantined_count
from lakehouse.vacuum.inventory.run import known_inventories
from lakehouse.watch.metrics import plan as metrics
from lakehouse.watch.metrics.plan import TABLE_LABELS, Metric, labels_of

# Less than the 10 seconds after which Prometheus, by default, gives up a scrape.
_WAIT_SECONDS = 8.0
# The kinds of operation that every table may have. They are counted from 0 on, because Prometheus'
# `increase` ignores the first value of a series.
_KINDS = ("compaction", "vacuum")

Families = Iterable[GaugeMetricFamily]

_LOG = logging.getLogger(__name__)

disable_created_metrics()


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


class _GaugesCollector(Collector):
    def __init__(self, gauges: Families) -> None:
        self._gauges = gauges

    def collect(self) -> Families:
        return self._gauges


def metrics_text(gauges: Families) -> str:
    """The gauges in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(_GaugesCollector(gauges))
    return generate_latest(registry).decode()


def serve(
    read: Callable[[Counters], Families], *, max_age_seconds: float, port: int
) -> Callable[[], None]:
    """Serves metrics at `http://127.0.0.1:<port>/metrics`; returns a function that stops this.

    Raises:
        OSError: the port cannot be opened, for example because it is in use.
    """
    registry = CollectorRegistry()
    # Collectors are asked in this order, and a reading counts operations.
    registry.register(LakeCollector(lambda: read(counters), max_age_seconds=max_age_seconds))
    counters = Counters(registry, since_ms=now_ms())
    server, _ = start_http_server(port, addr="127.0.0.1", registry=registry)
    return server.shutdown


# Operations of this many past days are read, for counters and prediction errors.
_DAYS = 30
Value = TypeVar("Value")


class Gauges:
    """The gauges that were read. An unknown value (`None`) is omitted."""

    def __init__(self) -> None:
        self.families = dict[Metric, GaugeMetricFamily]()

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
            self.add(metrics.SOURCE_READABLE, (name,), 0)
            return None
        self.add(metrics.SOURCE_READABLE, (name,), 1)
        return value


def read_gauges(
    lake: Lake,
    tables: Iterable[Table],
    *,
    dagster_home: Path | None,
    counters: "Counters | None" = None,
) -> list[GaugeMetricFamily]:
    """The present values of all gauges of a lake.

    `dagster_home` is the folder of Dagster's records, or `None` to omit their metrics. Operations
    are counted in `counters`.
    """
    gauges = Gauges()
    read_ms = now_ms()
    gauges.add(metrics.READ_AT, (), read_ms / 1000)
    declared = {table.key: table for table in tables}
    fleet = read_fleet(lake, declared, [*declared.values()])
    existing = dict[str, Table]()
    for found in fleet.tables:
        labels = labels_of(found.table.key)
        if found.error is not None:
            gauges.add(metrics.READABLE, labels, 0)
        elif found.value is not None:
            existing[found.table.key] = found.table
            gauges.add(metrics.READABLE, labels, 1)
            _add_table(gauges, labels, found.value, read_ms)
    for decision in fleet.decisions:
        if decision.table in existing:
            labels = (*labels_of(decision.table), "compaction", decision.reason.name)
            gauges.add(metrics.DECISION, labels, 1)
    _add_quarantines(gauges, lake, existing)
    since_ms = read_ms - _DAYS * DAY_MS
    operations = gauges.source("operations", lambda: _operations(lake, since_ms))
    if operations is not None:
        for key, table in existing.items():
            _add_operations(gauges, table, operations.get(key, ()), counters)
    inventories = gauges.source("inventory", lambda: known_inventories(lake))
    if inventories:
        gauges.add(metrics.INVENTORY, (), inventories[0].created_ms / 1000)
    if dagster_home is not None:
        _add_records(gauges, dagster_home, declared)
    return list(gauges.families.values())


def _operations(lake: Lake, since_ms: int) -> Mapping[str, Sequence[UpkeepOperation]]:
    """The operations of each table, oldest first."""
    by_table = defaultdict[str, list[UpkeepOperation]](list)
    for operation in read_operations(lake, since_ms=since_ms):
        by_table[operation.table].append(operation)
    return by_table


def _add_table(gauges: Gauges, labels: Sequence[str], reading: TableReading, read_ms: int) -> None:
    health = reading.health
    pause = reading.known.pause
    gauges.add(metrics.FILES, labels, health.file_count)
    gauges.add(metrics.SMALL_FILES, labels, health.small_file_count)
    gauges.add(metrics.MERGEABLE_FILES, labels, health.mergeable_file_count)
    gauges.add(metrics.ROWS, labels, health.row_count)
    gauges.add(metrics.BYTES, (*labels, "live"), health.size_bytes)
    gauges.add(metrics.BYTES, (*labels, "tombstoned"), health.tombstone_bytes)
    gauges.add(metrics.HEALTH_SCORE, labels, health.score)
    gauges.add(metrics.LOG_COMMITS, labels, health.log.commit_count)
    gauges.add(metrics.LAST_WRITE, labels, _seconds(health.committed_ms))
    gauges.add(metrics.LAST_COMPACTION, labels, _seconds(reading.known.state.last_compaction_ms))
    gauges.add(metrics.PAUSED, labels, pause is not None and pause.holds(read_ms))


def _seconds(ms: int | None) -> float | None:
    """A time in seconds, as Prometheus expects it."""
    return None if ms is None else ms / 1000


def _add_quarantines(gauges: Gauges, lake: Lake, existing: Mapping[str, Table]) -> None:
    landed = [table for table in existing.values() if table.source is not None]
    for found in for_each_table(landed, lambda table: quarantined_count(lake, table.key)):
        key = found.table.key
        gauges.add(metrics.QUARANTINED_ROWS, labels_of(key), found.value)
        if found.error is not None:
            gauges.add(metrics.READABLE, labels_of(quarantine_key(key)), 0)


def _add_operations(
    gauges: Gauges,
    table: Table,
    operations: Sequence[UpkeepOperation],
    counters: "Counters | None",
) -> None:
    """Adds what the operations of a table show. They are ordered oldest first."""
    labels = labels_of(table.key)
    vacuums_ms = [each.started_ms for each in operations if each.kind == "vacuum"]
    if table.vacuum.mode == "automatic" and vacuums_ms:
        gauges.add(metrics.LAST_VACUUM, labels, _seconds(vacuums_ms[-1]))
    newest = {each.kind: each for each in operations if each.figures}
    for kind, operation in newest.items():
        for figure in operation.figures:
            gauges.add(metrics.PREDICTION_ERROR, (*labels, kind, figure.name), figure.error)
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
    gauges.add(metrics.RECORDS_BYTES, (), size_bytes)
    for (asset, check), has_passed in checks.items():
        parts = asset.split("/")
        layer = parts[-2] if len(parts) > 1 else ""
        if layer not in LAYERS or "/".join(parts[-2:]) in declared:
            gauges.add(metrics.CHECK_PASSED, (*labels_of(asset), check), has_passed)
