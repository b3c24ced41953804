"""Reads what the morning page shows: logs, journal, and the newest inventory, without Spark.

Each log is read once. What cannot be read is unknown on the page, or named there, and never ends
the report.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.commits import is_news
from lakehouse.core.delta.protocol import retention_ms_of
from lakehouse.core.delta.snapshot import Snapshot, TableFacts
from lakehouse.core.errors import LakehouseError, Transient
from lakehouse.core.inventory.objects import KINDS, Part
from lakehouse.core.inventory.reconcile import Reconciliation
from lakehouse.core.metrics.facts import DagsterRecords
from lakehouse.core.report.attention import (
    LATE_VACUUM_MS,
    attention_to_checks,
    attention_to_deletions,
    attention_to_inventory,
    attention_to_missing,
    attention_to_table,
    attention_to_undeclared,
)
from lakehouse.core.report.page import (
    Attention,
    Page,
    RecordsSize,
    ReportedTable,
    StoredBytes,
    StoredShare,
    points_of,
)
from lakehouse.core.scheduling.ranking import Decision
from lakehouse.core.vacuum.facts import VacuumRecord
from lakehouse.engine.adoption.find_tables import undeclared_tables
from lakehouse.engine.clock import now_ms
from lakehouse.engine.each_table import Found, look_at_each
from lakehouse.engine.fleet_from_logs import TableReading, read_fleet
from lakehouse.engine.ingest.quarantine.entries import quarantined_count
from lakehouse.engine.inventory.reconcile_lake import known_report, reconcile_report
from lakehouse.engine.inventory.stored_reports import SCAN
from lakehouse.engine.journal.vacuums import vacuum_records
from lakehouse.engine.lake import Lake
from lakehouse.engine.report.stored_pages import earlier_values
from lakehouse.runtime.dagster_files import read_dagster_records

_KIND_OF = {part: kind for kind, parts in KINDS.items() for part in parts}
# The class of an object whose report does not name one, and of files on a disk.
_NO_CLASS = "not recorded"


@dataclass(frozen=True, slots=True, kw_only=True)
class _LogFigures:
    """What the page needs of a table's log beyond its health."""

    file_counts: tuple[tuple[int, int], ...]
    last_write_ms: int | None
    overdue_bytes: int | None


@dataclass(slots=True)
class _Journal:
    """Facts of the journal and of quarantines, by table; unknown ones are absent."""

    vacuums: dict[str, VacuumRecord | None] = field(default_factory=dict[str, VacuumRecord | None])
    quarantined: dict[str, int | None] = field(default_factory=dict[str, int | None])


def read_page(
    lake: Lake, declared: Mapping[str, Table], *, dagster_home: Path | None = None
) -> Page:
    """The page of a lake and its tables, as they are now.

    `dagster_home` is the folder of Dagster's records, if there is one.
    """
    now, tables = now_ms(), list(declared.values())
    journal = _read_journal(lake, tables)
    figures = dict[str, _LogFigures]()

    def look(table: Table, facts: TableFacts) -> None:
        figures[table.key] = _figures(facts, journal.vacuums.get(table.key), now=now)

    fleet = read_fleet(lake, declared, tables, look=look)
    decisions = {each.table: each for each in fleet.decisions}
    ranks = {key: rank for rank, key in enumerate(decisions)}
    reported = [
        _reported(each, figures.get(each.table.key), decisions[each.table.key], journal)
        for each in fleet.tables
    ]
    stored, of_inventory = _read_inventory(lake, tables, now=now)
    records = _read_records(dagster_home)
    attention = [*of_inventory, *_undeclared(lake, tables, fleet.tables)]
    attention += attention_to_checks(_failed_checks(records), tables)
    for table, found in zip(reported, fleet.tables, strict=True):
        pause = found.value.known.pause if found.value else None
        last = journal.vacuums.get(table.table)
        attention += attention_to_table(table, pause, now_ms=now)
        attention += attention_to_deletions(table.table, {} if last is None else last.failed)
    return Page(
        lake=lake.settings.root,
        created_ms=now,
        attention=tuple(attention),
        tables=tuple(sorted(reported, key=lambda table: ranks[table.table])),
        stored=stored,
        records=None if records is None else _records_size(lake, records, now=now),
    )


def _read_records(dagster_home: Path | None) -> DagsterRecords | None:
    """Dagster's records; `None` if there are none, or they cannot be read."""
    with suppress(OSError, sqlite3.Error):
        return None if dagster_home is None else read_dagster_records(dagster_home)
    return None


def _failed_checks(records: DagsterRecords | None) -> list[tuple[str, str]]:
    checks = {} if records is None else records.checks
    return [check for check, has_passed in checks.items() if not has_passed]


def _records_size(lake: Lake, records: DagsterRecords, *, now: int) -> RecordsSize:
    """The size of the records, next to that on the newest page of an earlier day."""
    earlier = earlier_values(lake.store, now_ms=now)
    before = earlier.get("records") or {}
    return RecordsSize(
        size_bytes=records.size_bytes,
        run_count=records.run_count,
        before_bytes=before.get("size_bytes"),
        before_ms=earlier.get("created_ms"),
    )


def _read_journal(lake: Lake, tables: Sequence[Table]) -> _Journal:
    vacuums = look_at_each(
        tables, lambda table: next(reversed(vacuum_records(lake.store, table.key)), None)
    )
    landed = [table for table in tables if table.source is not None]
    quarantined = look_at_each(landed, lambda table: quarantined_count(lake, table.key))
    return _Journal(
        vacuums={each.table.key: each.value for each in vacuums if not each.error},
        quarantined={each.table.key: each.value for each in quarantined if not each.error},
    )


def _figures(facts: TableFacts, vacuumed: VacuumRecord | None, *, now: int) -> _LogFigures:
    snapshot, history = facts.snapshot, facts.history
    counts = history.file_counts(snapshot.file_count)
    times_ms = [commit.committed_ms for commit in history.commits]
    return _LogFigures(
        file_counts=points_of(times_ms, counts),
        last_write_ms=max(
            (commit.committed_ms for commit in history.commits if is_news(commit)), default=None
        ),
        overdue_bytes=_overdue_bytes(snapshot, vacuumed, now=now),
    )


def _overdue_bytes(snapshot: Snapshot, vacuumed: VacuumRecord | None, *, now: int) -> int | None:
    """Bytes of files removed so long ago that a vacuum should have deleted them; `None`: unknown.

    A tombstone stays in the log after its file was vacuumed, so those that the newest vacuum
    considered do not count.
    """
    retention_ms = retention_ms_of(snapshot.properties)
    if retention_ms is None:
        return None
    until_ms = now - retention_ms - LATE_VACUUM_MS
    since_ms = 0 if vacuumed is None else vacuumed.horizon_ms
    return sum(
        stone.size_bytes or 0
        for stone in snapshot.tombstones
        if stone.deleted_ms is not None and since_ms <= stone.deleted_ms < until_ms
    )


def _reported(
    found: Found[TableReading], figures: _LogFigures | None, decision: Decision, journal: _Journal
) -> ReportedTable:
    key, reading = found.table.key, found.value
    vacuumed = journal.vacuums.get(key)
    if reading is None or figures is None:
        return ReportedTable(
            table=key,
            problem=str(found.error) if found.error else "",
            exists=found.error is not None,
            quarantined_rows=journal.quarantined.get(key),
        )
    health = reading.health
    return ReportedTable(
        table=key,
        score=health.score,
        health=health.sentence,
        file_count=health.file_count,
        small_file_count=health.small_file_count,
        size_bytes=health.size_bytes,
        row_count=health.row_count,
        file_counts=figures.file_counts,
        last_write_ms=figures.last_write_ms,
        last_compaction_ms=reading.known.state.last_compaction_ms,
        last_vacuum_ms=None if vacuumed is None else vacuumed.ended_ms,
        overdue_bytes=None if found.table.vacuum.mode == "off" else figures.overdue_bytes,
        is_due=decision.request,
        reason=decision.reason.name,
        decision=decision.sentence,
        quarantined_rows=journal.quarantined.get(key),
    )


def _undeclared(
    lake: Lake, tables: Sequence[Table], found: Sequence[Found[TableReading]]
) -> list[Attention]:
    """What needs a person at undeclared tables; none are searched if storage does not answer."""
    if any(isinstance(each.error, Transient) for each in found):
        return []
    try:
        return attention_to_undeclared(undeclared_tables(lake, tables))
    except LakehouseError:
        return []


def _read_inventory(
    lake: Lake, tables: Sequence[Table], *, now: int
) -> tuple[StoredBytes, list[Attention]]:
    """The bytes by the newest inventory, and what needs a person there."""
    try:
        report = known_report(lake, now_ms=now)
        found = reconcile_report(lake, tables, report, now_ms=now)
    except LakehouseError as error:
        stored = StoredBytes(problem=str(error))
        if all(table.key in lake.elsewhere for table in tables):
            return stored, []  # an inventory covers the lake only
        return stored, attention_to_inventory(stored, is_own=True, now_ms=now)
    stored = StoredBytes(
        report=report.name,
        created_ms=report.created_ms,
        shares=_shares(found),
    )
    attention = attention_to_inventory(stored, is_own=report.configuration == SCAN, now_ms=now)
    for table in found.tables:
        attention += attention_to_missing(table.table, table.missing)
    return stored, attention


def _shares(found: Reconciliation) -> tuple[StoredShare, ...]:
    """Files and bytes of the lake by part and storage class, the largest first."""
    sums = dict[tuple[Part | None, str], list[int]]()
    every = [share for table in found.tables for share in table.shares]
    for share in (*every, *found.unclaimed):
        cell = sums.setdefault((share.part, share.storage_class or _NO_CLASS), [0, 0])
        cell[0] += share.file_count
        cell[1] += share.size_bytes
    shares = [
        StoredShare(
            part="outside all tables" if part is None else part.value,
            kind=_kind(part),
            storage_class=storage_class,
            file_count=file_count,
            size_bytes=size_bytes,
        )
        for (part, storage_class), (file_count, size_bytes) in sums.items()
    ]
    return tuple(sorted(shares, key=lambda each: -each.size_bytes))


def _kind(part: Part | None) -> str:
    return "other" if part is None else _KIND_OF.get(part, "other")
