"""Reads what the morning page shows: logs, journal, and the newest inventory, without Spark.

Each log is read once. If something cannot be read, the page shows it as unknown or as a problem,
and the other values are still shown.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta

from lakehouse.core.costs.chargeback_columns import midnight
from lakehouse.core.costs.charges import day_of
from lakehouse.core.costs.exact_amounts import month_start
from lakehouse.core.costs.operations import UpkeepOperation, failed_compactions, vacuums_of
from lakehouse.core.costs.summary import budget_scopes, parse_budgets
from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.commits import is_news
from lakehouse.core.delta.protocol import retention_ms_of
from lakehouse.core.delta.snapshot import Snapshot, TableFacts
from lakehouse.core.errors import LakehouseError, Transient
from lakehouse.core.journal_records import VacuumRecord
from lakehouse.core.metrics.facts import DagsterRecords
from lakehouse.core.report.attention import (
    LATE_VACUUM_MS,
    Attention,
    Concern,
    attention_to_checks,
    attention_to_deletions,
    attention_to_table,
    attention_to_undeclared,
)
from lakehouse.core.report.money import Money, attention_to_budgets, money_of
from lakehouse.core.report.page_contents import Page
from lakehouse.core.report.values import RecordsSize, ReportedTable, points_of
from lakehouse.core.scheduling.table_decision import Decision
from lakehouse.engine.adoption.find_tables import undeclared_tables
from lakehouse.engine.clock import now_ms
from lakehouse.engine.costs.chargeback_table import KnownFacts
from lakehouse.engine.costs.operations_table import DAYS_BACK
from lakehouse.engine.costs.price_book import load_price_book
from lakehouse.engine.costs.read_ledger import read_ledger
from lakehouse.engine.costs.read_operations import operations_in_log
from lakehouse.engine.fleet_from_logs import TableReading, read_fleet
from lakehouse.engine.ingest.quarantine.entries import quarantine_key
from lakehouse.engine.journal.journal import vacuum_records
from lakehouse.engine.lake import Lake
from lakehouse.engine.read_each_table import Found, for_each_table
from lakehouse.engine.report.inventory import InventoryOfPage
from lakehouse.engine.report.stored_pages import EarlierPage, earlier_page


@dataclass(frozen=True, slots=True, kw_only=True)
class _LogFigures:
    """The figures from a table's log that the page shows in addition to its health.

    `file_counts`: see `points_of`. `overdue_bytes`: see `_overdue_bytes`.
    """

    file_counts: tuple[tuple[int, int], ...]
    last_write_ms: int | None
    overdue_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Journal:
    """Past vacuums, oldest first, and the number of quarantined rows, by table.

    Unreadable tables are absent. An unknown number is `None`.
    """

    vacuums: dict[str, tuple[VacuumRecord, ...]]
    quarantined: dict[str, int | None]

    def last_vacuum(self, table: str) -> VacuumRecord | None:
        """The newest vacuum of a table, or `None` if no vacuum is known."""
        return next(reversed(self.vacuums.get(table, ())), None)

    def failed_deletions(self, table: str) -> Mapping[str, str]:
        """The files that the newest vacuum of a table could not delete, with the reasons."""
        vacuum = self.last_vacuum(table)
        return {} if vacuum is None else vacuum.failed


def read_page(
    lake: Lake, declared: Mapping[str, Table], *, records: DagsterRecords | None = None
) -> Page:
    """The page of a lake and its tables in their present state.

    `records` are Dagster's own records, or `None` if they are unknown.
    """
    now = now_ms()
    tables = list(declared.values())
    inventory = InventoryOfPage(lake, now_ms=now)
    journal = _read_journal(lake, tables, inventory)
    earlier = _read_earlier(lake, now=now)
    figures = dict[str, _LogFigures]()
    since_ms = operations_start_ms(now)
    in_log = dict[str, list[UpkeepOperation]]()

    def note_facts(table: Table, facts: TableFacts) -> None:
        inventory.take(table.key, facts)
        in_log[table.key] = operations_in_log(lake, table, facts, since_ms=since_ms)
        figures[table.key] = _figures(facts, journal.last_vacuum(table.key), now=now)

    fleet = read_fleet(lake, declared, tables, on_facts=note_facts)
    decisions = {each.table: each for each in fleet.decisions}
    ranks = {key: rank for rank, key in enumerate(decisions)}  # decisions are ordered by rank
    reported = [
        replace(
            _reported(each, figures.get(each.table.key), decisions[each.table.key], journal),
            score_before=earlier.scores.get(each.table.key),
        )
        for each in fleet.tables
    ]
    unread = {each.table.key: str(each.error) for each in fleet.tables if each.error}
    stored, of_inventory = inventory.reconcile(tables, unread)
    attention = [*of_inventory, *_undeclared(lake, tables, fleet.tables)]
    attention += attention_to_checks(_failed_checks(records), tables)
    for table, found in zip(reported, fleet.tables, strict=True):
        pause = found.value.known.pause if found.value else None
        attention += attention_to_table(table, pause, now_ms=now)
        attention += attention_to_deletions(table.table, journal.failed_deletions(table.table))
    operations = [operation for of_table in in_log.values() for operation in of_table]
    operations += _operations_in_journal(fleet.tables, journal, since_ms=since_ms)
    known = KnownFacts(operations=operations, reconciled=inventory.reconciled)
    money, of_budgets = read_money(lake, declared, known, now_ms=now)
    attention += of_budgets
    return Page(
        lake=lake.settings.root,
        created_ms=now,
        since_ms=since_ms,
        money=money,
        runs=tuple(sorted(operations, key=lambda operation: -operation.ended_ms)),
        attention=tuple(attention),
        tables=tuple(sorted(reported, key=lambda table: ranks[table.table])),
        stored=stored,
        records=None if records is None else _records_size(records, earlier),
    )


def _operations_in_journal(
    tables: Iterable[Found[TableReading]], journal: _Journal, *, since_ms: int
) -> Iterator[UpkeepOperation]:
    """The vacuums and failed compactions since `since_ms`, which only the journal records."""
    for found in tables:
        key = found.table.key
        prices = found.table.prices
        tries = found.value.known.tries if found.value else ()
        yield from vacuums_of(key, journal.vacuums.get(key, ()), prices, since_ms=since_ms)
        yield from failed_compactions(key, tries, prices, since_ms=since_ms)


def _failed_checks(records: DagsterRecords | None) -> list[tuple[str, str]]:
    checks = {} if records is None else records.checks
    return [check for check, has_passed in checks.items() if not has_passed]


def _records_size(records: DagsterRecords, earlier: EarlierPage) -> RecordsSize:
    return RecordsSize(
        size_bytes=records.size_bytes,
        run_count=records.run_count,
        before_bytes=earlier.records_bytes,
        before_ms=earlier.created_ms,
    )


def _read_earlier(lake: Lake, *, now: int) -> EarlierPage:
    """The newest page of an earlier day. If it cannot be read, all its values are unknown."""
    with suppress(LakehouseError):
        return earlier_page(lake.store, now_ms=now)
    return EarlierPage()


def _read_journal(lake: Lake, tables: Sequence[Table], inventory: InventoryOfPage) -> _Journal:
    def quarantined_rows(table: Table) -> int | None:
        key = quarantine_key(table.key)
        facts = lake.facts(key)
        inventory.take(key, facts)
        return 0 if facts is None else facts.snapshot.row_count

    vacuums = for_each_table(tables, lambda table: vacuum_records(lake.store, table.key))
    landed = [table for table in tables if table.source is not None]
    quarantined = for_each_table(landed, quarantined_rows)
    return _Journal(
        vacuums={each.table.key: each.value or () for each in vacuums if not each.error},
        quarantined={each.table.key: each.value for each in quarantined if not each.error},
    )


def _figures(facts: TableFacts, last_vacuum: VacuumRecord | None, *, now: int) -> _LogFigures:
    snapshot = facts.snapshot
    history = facts.history
    counts = history.file_counts(snapshot.file_count)
    times_ms = [commit.committed_ms for commit in history.commits]
    write_times_ms = [commit.committed_ms for commit in history.commits if is_news(commit)]
    return _LogFigures(
        file_counts=points_of(times_ms, counts),
        last_write_ms=max(write_times_ms, default=None),
        overdue_bytes=_overdue_bytes(snapshot, last_vacuum, now=now),
    )


def _overdue_bytes(snapshot: Snapshot, last_vacuum: VacuumRecord | None, *, now: int) -> int | None:
    """Bytes of files that a vacuum should have deleted by now; `None` if unknown.

    A tombstone stays in the log after a vacuum has deleted its file. So tombstones from before the
    horizon of the newest vacuum do not count.
    """
    retention_ms = retention_ms_of(snapshot.properties)
    if retention_ms is None:
        return None
    until_ms = now - retention_ms - LATE_VACUUM_MS
    since_ms = 0 if last_vacuum is None else last_vacuum.horizon_ms
    return sum(
        tombstone.size_bytes or 0
        for tombstone in snapshot.tombstones
        if tombstone.deleted_ms is not None and since_ms <= tombstone.deleted_ms < until_ms
    )


def _reported(
    found: Found[TableReading], figures: _LogFigures | None, decision: Decision, journal: _Journal
) -> ReportedTable:
    key = found.table.key
    reading = found.value
    last_vacuum = journal.last_vacuum(key)
    if reading is None or figures is None:
        return ReportedTable(
            table=key,
            owner=found.table.owner,
            problem=str(found.error) if found.error else "",
            exists=found.error is not None,  # an error means that there is a log
            quarantined_rows=journal.quarantined.get(key),
        )
    health = reading.health
    return ReportedTable(
        table=key,
        owner=found.table.owner,
        score=health.score,
        health=health.sentence,
        file_count=health.file_count,
        small_file_count=health.small_file_count,
        size_bytes=health.size_bytes,
        row_count=health.row_count,
        file_counts=figures.file_counts,
        last_write_ms=figures.last_write_ms,
        last_compaction_ms=reading.known.state.last_compaction_ms,
        last_vacuum_ms=None if last_vacuum is None else last_vacuum.ended_ms,
        overdue_bytes=None if found.table.vacuum.mode == "off" else figures.overdue_bytes,
        is_due=decision.request,
        reason=decision.reason.name,
        decision=decision.sentence,
        quarantined_rows=journal.quarantined.get(key),
    )


def _undeclared(
    lake: Lake, tables: Sequence[Table], found: Sequence[Found[TableReading]]
) -> list[Attention]:
    """The undeclared tables that need attention; empty if storage does not answer."""
    if any(isinstance(each.error, Transient) for each in found):
        return []
    try:
        return attention_to_undeclared(undeclared_tables(lake, tables))
    except LakehouseError:
        return []


def read_money(
    lake: Lake, declared: Mapping[str, Table], known: KnownFacts, *, now_ms: int
) -> tuple[Money | None, list[Attention]]:
    """The costs of this month, and the budgets that the month will exceed.

    If the costs cannot be read: `None`, and the reason. `known` has the facts that were read for
    other parts of the page.
    """
    today = day_of(now_ms)
    try:
        book = load_price_book(lake.settings)
        ledger = read_ledger(lake, declared, since=month_start(now_ms), now_ms=now_ms, facts=known)
    except LakehouseError as error:
        return None, [Attention(concern=Concern.UNREADABLE, sentence=str(error))]
    money = money_of(ledger.charges, book, declared, today=today, is_on_s3=lake.settings.on_s3)
    budgets = budget_scopes(declared.values(), parse_budgets(lake.settings.budgets))
    return money, attention_to_budgets(ledger.charges, budgets, declared, today=today)


def operations_start_ms(now_ms: int) -> int:
    """The time from which on `KnownFacts` must contain all operations."""
    first = day_of(now_ms) - timedelta(days=DAYS_BACK)
    return int(midnight(first).timestamp() * 1000)
