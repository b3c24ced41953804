"""Reads the metrics of a lake, without Spark: logs, the lake's operations, Dagster's records.

If a table or a source cannot be read, its values are absent and a metric reports it. All other
values are still read.
"""

import logging
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from lakehouse.assets.home import read_dagster_records
from lakehouse.base.clock import now_ms
from lakehouse.base.errors import LakehouseError
from lakehouse.base.stored_objects import PART_GROUPS, Part
from lakehouse.base.text import DAY_MS
from lakehouse.compact.assess import TableReading, read_fleet
from lakehouse.declare.compaction import LAYERS
from lakehouse.declare.table import Table
from lakehouse.declare.upkeep_records import UpkeepOperation
from lakehouse.lake.lake import Lake
from lakehouse.lake.operations import read_operations
from lakehouse.lake.read_each_table import Found, for_each_table
from lakehouse.land.loaded_batches import quarantine_key, quarantined_count
from lakehouse.vacuum.inventory.table import known_inventories
from lakehouse.watch.costs.plan import day_of
from lakehouse.watch.costs.run import read_charges
from lakehouse.watch.metrics import plan as families
from lakehouse.watch.metrics.plan import Counters, Sample, known, labels_of

# Operations of this many past days are read, for counters and prediction errors.
_DAYS = 30
# The parts of an inventory that the tables' logs do not list, and their names in the metrics.
_PARTS: Mapping[Part, str] = {
    Part.ARCHIVED: "archived",
    Part.ORPHANED_YOUNG: "orphaned",
    Part.ORPHANED_OLD: "orphaned",
    Part.NONCURRENT: "noncurrent",
    **dict.fromkeys(PART_GROUPS["log"], "log"),
}
_PART_NAMES = {part.name.lower(): name for part, name in _PARTS.items()}

_LOG = logging.getLogger(__name__)

Value = TypeVar("Value")


@dataclass(slots=True)
class _Facts:
    """Facts about the tables by key, in addition to those that `read_fleet` reads.

    - `stored`: the bytes by part, for each table in the newest inventory.
    - `operations`: those of the last `_DAYS`, oldest first; `None` if they cannot be read.
    - `sources`: whether each source of facts about the whole lake could be read.
    """

    now_ms: int
    quarantined: Mapping[str, Found[int]] = field(default_factory=dict[str, Any])
    decisions: Mapping[str, str] = field(default_factory=dict[str, str])
    stored: Mapping[str, Mapping[str, int]] = field(default_factory=dict[str, Any])
    operations: Mapping[str, Sequence[UpkeepOperation]] | None = None
    sources: dict[str, bool] = field(default_factory=dict[str, bool])

    @property
    def since_ms(self) -> int:
        return self.now_ms - _DAYS * DAY_MS

    def read(self, name: str, source: Callable[[], Value]) -> Value | None:
        """The source's result; `None` if it cannot be read."""
        self.sources[name] = False
        try:
            value = source()
        except (LakehouseError, OSError, sqlite3.Error):
            return None
        self.sources[name] = True
        return value


def read_samples(
    lake: Lake,
    tables: Iterable[Table],
    *,
    dagster_home: Path | None,
    counters: Counters | None = None,
) -> list[Sample]:
    """The present values of all metrics of a lake.

    `dagster_home` is the folder of Dagster's records, or `None` to omit their metrics. Operations
    are counted in `counters`; without it, there are no counters.
    """
    started_seconds = time.monotonic()
    declared = {table.key: table for table in tables}
    facts = _Facts(now_ms=now_ms())
    fleet = read_fleet(lake, declared, [*declared.values()])
    landed = [table for table in declared.values() if table.source is not None]
    quarantines = for_each_table(landed, lambda table: quarantined_count(lake, table.key))
    facts.quarantined = {each.table.key: each for each in quarantines}
    facts.decisions = {each.table: each.reason.name for each in fleet.decisions}
    facts.operations = facts.read("operations", lambda: _operations(lake, facts.since_ms))
    facts.stored = facts.read("costs", lambda: _stored_bytes(lake, facts.now_ms)) or {}
    inventories = facts.read("inventory", lambda: known_inventories(lake))
    samples = list[Sample]()
    for found in fleet.tables:
        samples += _of_table(found, facts, counters)
    if dagster_home is not None:
        samples += _of_records(dagster_home, declared, facts)
    if inventories:
        samples.append(Sample(families.INVENTORY, (), inventories[0].created_ms / 1000))
    for source, is_readable in facts.sources.items():
        samples.append(Sample(families.SOURCE_READABLE, (source,), float(is_readable)))
    samples.append(Sample(families.READ_AT, (), facts.now_ms / 1000))
    samples.append(Sample(families.READ_SECONDS, (), time.monotonic() - started_seconds))
    samples.append(Sample(families.BUILD_INFO, (version("lakehouse"),), 1.0))
    return samples


def _of_table(
    found: Found[TableReading], facts: _Facts, counters: Counters | None
) -> Iterator[Sample]:
    """The samples of a table, and of its quarantine if that cannot be read."""
    key = found.table.key
    quarantine = facts.quarantined.get(key)
    if quarantine is not None and quarantine.error is not None:
        yield Sample(families.READABLE, labels_of(quarantine_key(key)), 0.0)
    is_readable = found.error is None
    samples = list[Sample]()
    if found.value is not None:
        try:
            samples = list(_of_existing(found.table, found.value, facts, counters))
        except Exception:  # an unexpected record of one table must not hide the other tables
            _LOG.exception("the metrics of %s cannot be read", key)
            is_readable = False
    if found.value is not None or not is_readable:
        yield Sample(families.READABLE, labels_of(key), float(is_readable))
    yield from samples


def _of_existing(
    table: Table, reading: TableReading, facts: _Facts, counters: Counters | None
) -> Iterator[Sample]:
    key = table.key
    labels = labels_of(key)
    pause = reading.known.pause
    last_compaction_ms = reading.known.state.last_compaction_ms
    quarantine = facts.quarantined.get(key)
    yield from families.health_samples(key, reading.health)
    yield from known(families.LAST_COMPACTION, labels, families.in_seconds(last_compaction_ms))
    yield from known(
        families.QUARANTINED_ROWS, labels, None if quarantine is None else quarantine.value
    )
    yield Sample(families.PAUSED, labels, float(pause is not None and pause.holds(facts.now_ms)))
    for part, size_bytes in facts.stored.get(key, {}).items():
        yield Sample(families.BYTES, (*labels, part), size_bytes)
    if key in facts.decisions:
        yield Sample(families.DECISION, (*labels, "compaction", facts.decisions[key]), 1.0)
    if facts.operations is None:
        return
    operations = facts.operations.get(key, ())
    vacuums_ms = [each.started_ms for each in operations if each.kind == "vacuum"]
    if table.vacuum.mode == "automatic" and vacuums_ms:
        yield from known(families.LAST_VACUUM, labels, families.in_seconds(vacuums_ms[-1]))
    yield from families.prediction_samples(key, operations)
    if counters is not None:
        yield from counters.count(key, operations)


def _operations(lake: Lake, since_ms: int) -> dict[str, list[UpkeepOperation]]:
    by_table = dict[str, list[UpkeepOperation]]()
    for each in read_operations(lake, since_ms=since_ms):
        by_table.setdefault(each.table, []).append(each)
    return by_table


def _stored_bytes(lake: Lake, read_ms: int) -> dict[str, dict[str, int]]:
    """Bytes by table and part, from the newest day with an inventory in `costs/chargeback`.

    Empty if that table has an inventory of neither yesterday nor today.
    """
    charges = read_charges(lake, since=day_of(read_ms - DAY_MS))
    stored = [each for each in charges if each.is_storage]
    newest = max((each.day for each in stored), default=None)
    sums = dict[str, dict[str, int]]()
    for charge in stored:
        if charge.day == newest and charge.table:
            of_table = sums.setdefault(charge.table, dict.fromkeys(_PARTS.values(), 0))
            if charge.part in _PART_NAMES:
                of_table[_PART_NAMES[charge.part]] += charge.size_bytes or 0
    return sums


def _of_records(home: Path, declared: Mapping[str, Table], facts: _Facts) -> Iterator[Sample]:
    """The samples of Dagster's records, without checks of tables that are no longer declared.

    Such checks never run again, so their last results would be shown forever.
    """
    records = facts.read("dagster", lambda: read_dagster_records(home))
    if records is None:
        return
    for sample in families.record_samples(records):
        parts = sample.labels[0].split("/") if sample.labels else []
        layer = parts[-2] if len(parts) > 1 else ""
        if layer not in LAYERS or "/".join(parts[-2:]) in declared:
            yield sample
