"""Reads the metrics of a lake, without Spark: logs, the lake's operations, Dagster's records.

If a table or a source cannot be read, its values are absent and a metric reports it. All other
values are still read.
"""

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from prometheus_client.core import GaugeMetricFamily

from lakehouse.assets.home import folder_bytes, newest_checks
from lakehouse.base.clock import now_ms
from lakehouse.base.errors import LakehouseError
from lakehouse.base.text import DAY_MS
from lakehouse.compact.assess import TableReading, read_fleet
from lakehouse.declare.compaction import LAYERS
from lakehouse.declare.table import Table
from lakehouse.declare.upkeep_records import UpkeepOperation
from lakehouse.lake.lake import Lake
from lakehouse.lake.operations import read_operations
from lakehouse.lake.read_each_table import for_each_table
from lakehouse.land.ledger import quarantine_key, quarantined_count
from lakehouse.vacuum.inventory.table import known_inventories
from lakehouse.watch.metrics import plan as metrics
from lakehouse.watch.metrics.plan import Metric, labels_of

if TYPE_CHECKING:
    from lakehouse.watch.metrics.server import Counters

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
