"""Reads the facts behind the metrics: logs, journal and Dagster's records, without Spark.

If a table or a source cannot be read, its values are absent and a metric reports it. All other
values are still read.
"""

import logging
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from lakehouse.core.costs.chargeback_columns import charge_of
from lakehouse.core.costs.exact_amounts import day_of
from lakehouse.core.costs.operations import UpkeepOperation, failed_compactions, vacuums_of
from lakehouse.core.declaration.compaction_policy import LAYERS
from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.commits import ARCHIVE_APP_ID
from lakehouse.core.delta.snapshot import TableFacts
from lakehouse.core.errors import LakehouseError, Refused
from lakehouse.core.inventory.checks import loads_of
from lakehouse.core.inventory.objects import PART_GROUPS
from lakehouse.core.journal_records import VacuumRecord
from lakehouse.core.metrics.facts import DagsterRecords, MeasuredLake, MeasuredTable
from lakehouse.core.metrics.families import Sample, samples_of
from lakehouse.core.units import DAY_MS
from lakehouse.engine.clock import now_ms
from lakehouse.engine.costs.chargeback_table import read_charges
from lakehouse.engine.costs.read_operations import operations_in_log
from lakehouse.engine.fleet_from_logs import TableReading, read_fleet
from lakehouse.engine.ingest.quarantine.entries import quarantine_key, quarantined_count
from lakehouse.engine.journal.journal import recent_vacuums
from lakehouse.engine.lake import Lake
from lakehouse.engine.metrics.totals import Counters
from lakehouse.engine.read_each_table import Found, for_each_table
from lakehouse.engine.store import S3Store
from lakehouse.engine.store.s3_objects import open_uploads, s3_place
from lakehouse.runtime.dagster_files import read_dagster_records

# The first reading of a table counts the operations of this many past days. Every reading computes
# prediction errors from at least these days.
_FIRST_DAYS = 7
# A reading counts the operations of at most this many past days, even if the last reading is longer
# ago.
_MOST_DAYS = 30

# The parts of an inventory (`Part`) that the tables' logs do not list, by name, and their names in
# the metrics.
_PARTS = {
    "orphaned_young": "orphaned",
    "orphaned_old": "orphaned",
    "noncurrent": "noncurrent",
    **{part.name.lower(): "log" for part in PART_GROUPS["log"]},
}

_LOG = logging.getLogger(__name__)

Value = TypeVar("Value")


def read_samples(
    lake: Lake, tables: Iterable[Table], *, dagster_home: Path | None, keeps_totals: bool = True
) -> list[Sample]:
    """The present values of all metrics of a lake.

    `dagster_home` is the folder of Dagster's records, or `None` to omit their metrics. Without
    `keeps_totals`, nothing is written.
    """
    declared = {table.key: table for table in tables}
    facts = _Facts()
    samples = list(samples_of(_measure(lake, declared, dagster_home, facts)))
    if keeps_totals and facts.counters is not None:
        # Without permission to write, the next reading counts the same operations again.
        with suppress(LakehouseError, OSError):
            facts.counters.keep()
    return samples


@dataclass(slots=True)
class _Facts:
    """Facts about the tables by key, in addition to those that `read_fleet` reads.

    - `since_ms`: the time from which on operations are read.
    - `counters`: `None` if the totals cannot be read.
    - `in_log`: the operations that the table's log records.
    - `archived`: the bytes of each archive; `None` if the archive cannot be read.
    - `inventory`: the bytes by name in `_PARTS`, for each table in the newest inventory.
    - `uploads`: the bytes of each table's unfinished uploads. A table's value is `None` if it is
      unknown, and the whole mapping is `None` if uploads cannot be listed.
    - `vacuums`: when each table's newest vacuum began, and its records since `since_ms`; the whole
      mapping is `None` if the journal cannot be read.
    """

    since_ms: int = 0
    counters: Counters | None = None
    in_log: dict[str, list[UpkeepOperation]] = field(default_factory=dict[str, Any])
    archived: dict[str, int | None] = field(default_factory=dict[str, Any])
    quarantined_rows: dict[str, int | None] = field(default_factory=dict[str, Any])
    decisions: dict[str, str] = field(default_factory=dict[str, Any])
    inventory: Mapping[str, Mapping[str, int]] = field(default_factory=dict[str, Any])
    uploads: Mapping[str, int | None] | None = None
    vacuums: Mapping[str, tuple[int, tuple[VacuumRecord, ...]]] | None = None


def _measure(
    lake: Lake, declared: Mapping[str, Table], dagster_home: Path | None, facts: _Facts
) -> MeasuredLake:
    read_ms = now_ms()
    started_seconds = time.monotonic()
    sources = dict[str, bool]()

    def read(name: str, source: Callable[[], Value]) -> Value | None:
        """The source's result; `None` if it cannot be read."""
        try:
            value = source()
        except (LakehouseError, OSError, sqlite3.Error):
            sources[name] = False
            return None
        sources[name] = True
        return value

    today_ms = read_ms // DAY_MS * DAY_MS
    first_ms = today_ms - _FIRST_DAYS * DAY_MS
    oldest_ms = today_ms - _MOST_DAYS * DAY_MS
    counters_of = partial(Counters, now_ms=read_ms, first_ms=first_ms, oldest_ms=oldest_ms)
    facts.counters = read("totals", lambda: counters_of(lake.store))
    facts.since_ms = first_ms if facts.counters is None else facts.counters.since_ms
    fleet = read_fleet(
        lake, declared, [*declared.values()], on_facts=partial(_note_facts, lake, facts)
    )
    landed = [table for table in declared.values() if table.source is not None]
    quarantines = for_each_table(landed, lambda table: quarantined_count(lake, table.key))
    facts.quarantined_rows = {each.table.key: each.value for each in quarantines}
    facts.decisions = {each.table: each.reason.name for each in fleet.decisions}
    facts.vacuums = read("vacuums", lambda: recent_vacuums(lake.store, since_ms=facts.since_ms))
    facts.inventory = read("costs", lambda: _bytes_in_inventory(lake, read_ms)) or {}
    place = s3_place(lake.store, "")
    if place is not None:
        s3_store, _ = place
        facts.uploads = read("uploads", lambda: _bytes_in_uploads(s3_store, lake.elsewhere))
    unreadable = [quarantine_key(each.table.key) for each in quarantines if each.error]
    unreadable += [f"archive/{key}" for key, size in facts.archived.items() if size is None]
    records = None
    if dagster_home is not None:
        records = read("dagster", lambda: read_dagster_records(dagster_home))
    tables = [_measure_table(each, facts, now_ms=read_ms) for each in fleet.tables]
    tables += [MeasuredTable(table=key, is_readable=False) for key in unreadable]
    return MeasuredLake(
        tables=tuple(tables),
        version=version("lakehouse"),
        read_ms=read_ms,
        inventory_ms=read("inventory", lambda: _last_inventory_ms(lake)),
        dagster=_without_old_checks(records, declared),
        sources=sources,
        seconds=time.monotonic() - started_seconds,
    )


def _note_facts(lake: Lake, facts: _Facts, table: Table, log_facts: TableFacts) -> None:
    """Adds to `facts` what the metrics need from a table's log."""
    counters = facts.counters
    all_since_ms = None if counters is None else counters.since_of(table.key)
    facts.in_log[table.key] = operations_in_log(
        lake, table, log_facts, since_ms=facts.since_ms, all_since_ms=all_since_ms
    )
    if log_facts.snapshot.transactions.get(ARCHIVE_APP_ID):
        from lakehouse.retain.run.read import archived_size

        facts.archived[table.key] = None
        with suppress(LakehouseError):
            facts.archived[table.key] = archived_size(lake, log_facts)[1]


def _measure_table(found: Found[TableReading], facts: _Facts, *, now_ms: int) -> MeasuredTable:
    key = found.table.key
    reading = found.value
    if reading is None:
        return MeasuredTable(table=key, is_readable=found.error is None)
    try:
        return _measure_existing(found.table, reading, facts, now_ms=now_ms)
    except Exception:  # an unexpected record of one table must not hide the other tables
        _LOG.exception("the metrics of %s cannot be read", key)
        return MeasuredTable(table=key, is_readable=False)


def _measure_existing(
    table: Table, reading: TableReading, facts: _Facts, *, now_ms: int
) -> MeasuredTable:
    key = table.key
    pause = reading.known.pause
    last_vacuum_ms = None
    totals = None
    operations = list[UpkeepOperation]()
    if facts.vacuums is not None:
        last_vacuum_ms, records = facts.vacuums.get(key, (None, ()))
        unsorted = [
            *facts.in_log[key],
            *vacuums_of(key, records, table.prices, since_ms=facts.since_ms),
            *failed_compactions(key, reading.known.tries, table.prices, since_ms=facts.since_ms),
        ]
        operations = sorted(unsorted, key=lambda each: each.ended_ms)
        if facts.counters is not None:
            totals = facts.counters.count(key, operations, now_ms=now_ms)
    return MeasuredTable(
        table=key,
        is_readable=True,
        exists=True,
        health=reading.health,
        decision=facts.decisions.get(key, ""),
        last_compaction_ms=reading.known.state.last_compaction_ms,
        last_vacuum_ms=last_vacuum_ms if table.vacuum.mode == "automatic" else None,
        quarantined_rows=facts.quarantined_rows.get(key),
        archived_bytes=facts.archived.get(key),
        other_bytes=_other_bytes(key, facts),
        operations=tuple(operations),
        totals=totals,
        budget_usd_per_month=table.budget_usd_per_month,
        is_paused=pause is not None and pause.holds(now_ms),
    )


def _other_bytes(key: str, facts: _Facts) -> dict[str, int]:
    bytes_by_part = dict(facts.inventory.get(key, {}))
    if facts.uploads is not None:
        upload_bytes = facts.uploads.get(key, 0)
        if upload_bytes is not None:
            bytes_by_part["multipart"] = upload_bytes
    return bytes_by_part


def _bytes_in_inventory(lake: Lake, read_ms: int) -> dict[str, dict[str, int]]:
    """Bytes by table and name in `_PARTS`, from the newest day in the table `costs/chargeback`.

    Empty if that table has neither yesterday nor today.
    """
    days = read_charges(lake, since=day_of(read_ms - DAY_MS))
    if not days:
        return {}
    sums = dict[str, dict[str, int]]()
    for row in days[max(days)]:
        charge = charge_of(row)
        part = _PARTS.get(charge.part)
        if charge.size_bytes is None or not charge.is_stored or not charge.table:
            continue
        of_table = sums.setdefault(charge.table, dict.fromkeys(_PARTS.values(), 0))
        if part is not None:
            of_table[part] += charge.size_bytes
    return sums


def _bytes_in_uploads(store: S3Store, elsewhere: Iterable[str]) -> dict[str, int | None] | None:
    """Bytes of unfinished uploads by table, for the tables that have some.

    A value is `None` if an upload's size is unknown, and for the tables `elsewhere`, whose storage
    is not listed. Returns `None` if the permission to list uploads is missing, because nothing else
    needs it.
    """
    try:
        uploads = open_uploads(store)
    except Refused:
        return None
    sums = dict[str, int | None].fromkeys(elsewhere)
    for upload in uploads:
        key = "/".join(upload.key.removeprefix(store.prefix).split("/")[:2])
        sum_bytes = sums.get(key, 0)
        if sum_bytes is None or upload.size_bytes is None:
            sums[key] = None
        else:
            sums[key] = sum_bytes + upload.size_bytes
    return sums


def _last_inventory_ms(lake: Lake) -> int | None:
    """The time of the report that was loaded last; `None` if the log records no load."""
    facts = lake.facts(f"inventory/{lake.store.bucket}")
    newest = None if facts is None else next(loads_of(facts.history), None)
    return None if newest is None else newest.created_ms


def _without_old_checks(
    records: DagsterRecords | None, declared: Mapping[str, Table]
) -> DagsterRecords | None:
    """The records without the checks of tables that are no longer declared.

    Such checks never run again, so their last results would be shown forever.
    """
    if records is None:
        return None
    checks = dict[tuple[str, str], bool]()
    for (asset, check), has_passed in records.checks.items():
        parts = asset.split("/")  # for example `vacuum/bronze/weather` or `bronze/weather`
        layer = parts[-2] if len(parts) > 1 else ""
        if layer not in LAYERS or "/".join(parts[-2:]) in declared:
            checks[asset, check] = has_passed
    return replace(records, checks=checks)
