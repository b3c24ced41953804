"""Reads the facts behind the metrics: logs, journal and Dagster's records, without Spark.

What cannot be read is unknown, and named by a metric of its own. It never fails the rest.
"""

import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

from lakehouse.core.archive.records import APP_ID as ARCHIVE_APP_ID
from lakehouse.core.declaration.compaction_policy import LAYERS
from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.snapshot import TableFacts
from lakehouse.core.errors import LakehouseError
from lakehouse.core.inventory.checks import loads_of
from lakehouse.core.metrics.facts import DagsterRecords, MeasuredLake, MeasuredTable
from lakehouse.core.metrics.families import Sample, samples_of
from lakehouse.engine.archive.records import archive_contents
from lakehouse.engine.clock import now_ms
from lakehouse.engine.each_table import Found, look_at_each
from lakehouse.engine.fleet_from_logs import TableReading, read_fleet
from lakehouse.engine.ingest.quarantine.entries import quarantine_key, quarantined_count
from lakehouse.engine.journal.vacuums import last_vacuums_ms
from lakehouse.engine.lake import Lake
from lakehouse.runtime.dagster_files import read_dagster_records

type_of_value = TypeVar("type_of_value")


def read_samples(lake: Lake, tables: Iterable[Table], *, dagster_home: Path | None) -> list[Sample]:
    """The values of all metrics of a lake now. `dagster_home` holds Dagster's records, if any."""
    declared = {table.key: table for table in tables}
    return list(samples_of(_measure(lake, declared, dagster_home)))


def _measure(lake: Lake, declared: Mapping[str, Table], dagster_home: Path | None) -> MeasuredLake:
    read_ms, since = now_ms(), time.monotonic()
    sources = dict[str, bool]()

    def read(name: str, source: Callable[[], type_of_value]) -> type_of_value | None:
        """What the source returns; `None` if it cannot be read."""
        try:
            value = source()
        except (LakehouseError, OSError, sqlite3.Error):
            sources[name] = False
            return None
        sources[name] = True
        return value

    tables = list(declared.values())
    archived = dict[str, int | None]()

    def look(table: Table, facts: TableFacts) -> None:
        if facts.snapshot.transactions.get(ARCHIVE_APP_ID):
            archived[table.key] = None
            with suppress(LakehouseError):
                archived[table.key] = archive_contents(lake, facts).size_bytes

    fleet = read_fleet(lake, declared, tables, look=look)
    decisions = {each.table: each.reason.name for each in fleet.decisions}
    vacuums_ms = read("vacuums", lambda: last_vacuums_ms(lake.store)) or {}
    landed = [table for table in tables if table.source is not None]
    quarantines = look_at_each(landed, lambda table: quarantined_count(lake, table.key))
    rows = {each.table.key: each.value for each in quarantines}
    measured = [
        _measured(
            each,
            decision=decisions.get(each.table.key, ""),
            last_vacuum_ms=(
                vacuums_ms.get(each.table.key) if each.table.vacuum.mode == "automatic" else None
            ),
            quarantined_rows=rows.get(each.table.key),
            archived_bytes=archived.get(each.table.key),
        )
        for each in fleet.tables
    ]
    unreadable = [quarantine_key(each.table.key) for each in quarantines if each.error]
    unreadable += [f"archive/{key}" for key, size_bytes in archived.items() if size_bytes is None]
    measured += [MeasuredTable(table=key, is_readable=False) for key in unreadable]
    records = None
    if dagster_home is not None:
        records = read("dagster", lambda: read_dagster_records(dagster_home))
    return MeasuredLake(
        tables=tuple(measured),
        version=version("lakehouse"),
        read_ms=read_ms,
        inventory_ms=read("inventory", lambda: _last_inventory_ms(lake)),
        dagster=_of_this_lake(records, declared),
        sources=sources,
        seconds=time.monotonic() - since,
    )


def _measured(
    found: Found[TableReading],
    *,
    decision: str,
    last_vacuum_ms: int | None,
    quarantined_rows: int | None,
    archived_bytes: int | None,
) -> MeasuredTable:
    key, reading = found.table.key, found.value
    if reading is None:
        return MeasuredTable(table=key, is_readable=found.error is None)
    pause = reading.known.pause
    return MeasuredTable(
        table=key,
        is_readable=True,
        exists=True,
        health=reading.health,
        decision=decision,
        last_compaction_ms=reading.known.state.last_compaction_ms,
        last_vacuum_ms=last_vacuum_ms,
        quarantined_rows=quarantined_rows,
        archived_bytes=archived_bytes,
        is_paused=pause is not None and pause.holds(now_ms()),
    )


def _last_inventory_ms(lake: Lake) -> int | None:
    """The time of the newest report in the inventory table; `None` if there is none."""
    facts = lake.facts(f"inventory/{lake.store.bucket}")
    newest = None if facts is None else next(loads_of(facts.history), None)
    return None if newest is None else newest.created_ms


def _of_this_lake(
    records: DagsterRecords | None, declared: Mapping[str, Table]
) -> DagsterRecords | None:
    """The records without the checks of tables that are gone, whose results never change again."""
    if records is None:
        return None
    gone = {
        (asset, check)
        for asset, check in records.checks
        if _layer_of(asset) in LAYERS and "/".join(asset.split("/")[-2:]) not in declared
    }
    checks = {each: passed for each, passed in records.checks.items() if each not in gone}
    return replace(records, checks=checks)


def _layer_of(asset: str) -> str:
    """The last part but one of `vacuum/bronze/weather` or `bronze/weather`, or an empty text."""
    parts = asset.split("/")
    return parts[-2] if len(parts) > 1 else ""
