"""Reads the costs of a lake without Spark: charges, savings, and budgets.

The ledger is the table `costs/chargeback`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from lakehouse.core.check_result import CheckResult
from lakehouse.core.costs.chargeback_columns import charge_of
from lakehouse.core.costs.charges import Charge, of_report, total_usd
from lakehouse.core.costs.compaction_estimate import usd_per_opening
from lakehouse.core.costs.exact_amounts import day_of, decimal_of, month_start
from lakehouse.core.costs.price_book import DEFAULT_CLASS, PriceBook
from lakehouse.core.costs.summary import (
    FormulaCost,
    assess_budgets,
    budget_scopes,
    left_usd,
    parse_budgets,
)
from lakehouse.core.declaration.table import Table
from lakehouse.core.units import DAY_MS
from lakehouse.engine.costs.chargeback_table import Estimates, KnownFacts, read_charges
from lakehouse.engine.costs.price_book import load_price_book
from lakehouse.engine.journal.journal import vacuum_records
from lakehouse.engine.lake import Lake
from lakehouse.engine.read_each_table import for_each_table

# A month has 30 days in every figure that does not refer to a specific month.
_DAYS_PER_MONTH = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerReading:
    """The charges since a day.

    `unread` maps each table whose operations could not be read to the reason.
    """

    charges: tuple[Charge, ...]
    unread: Mapping[str, str]


def read_ledger(
    lake: Lake,
    tables: Mapping[str, Table],
    *,
    since: date,
    now_ms: int,
    facts: KnownFacts | None = None,
) -> LedgerReading:
    """The estimated charges since a day, including those of today so far.

    The `facts` are not read again. The charges of today, and of recent days (`Estimates.days`) that
    `costs/chargeback` lacks, are estimated here as the next run that writes this table would do.
    """
    estimates = Estimates(lake, tables, now_ms=now_ms, known=facts)
    recorded = read_charges(lake, since=min(since, estimates.first))
    charges = [charge_of(row) for rows in recorded.values() for row in rows]
    previous = list[Charge]()
    for day, _ in estimates.days:
        day_charges = [each for each in charges if each.day == day]
        if not day_charges or day == day_of(now_ms):
            day_charges = estimates.of_day(day, day_charges, previous)
            charges = [each for each in charges if each.day != day]
            charges += day_charges
        previous = of_report(day_charges) or previous
    charges_since = tuple(each for each in charges if each.day >= since)
    return LedgerReading(charges=charges_since, unread=estimates.unread)


def read_savings(
    lake: Lake, tables: Mapping[str, Table], charges: Sequence[Charge], *, now_ms: int
) -> list[FormulaCost]:
    """The monthly cost of small files; savings by compactions, the inventory and the archive."""
    book = load_price_book(lake.settings)
    return [
        *_costs_of_small_files(lake, tables, now_ms=now_ms),
        _saved_by_inventory(lake, tables, book, now_ms=now_ms),
        _saved_by_archive(charges, book),
    ]


def _costs_of_small_files(
    lake: Lake, tables: Mapping[str, Table], *, now_ms: int
) -> list[FormulaCost]:
    """The cost of opening small files, and the cost that compactions have saved."""
    from lakehouse.engine.costs.read_operations import read_operations
    from lakehouse.engine.fleet_from_logs import read_fleet

    fleet = read_fleet(lake, tables, list(tables.values()))
    small_usd = Decimal(0)
    small_count = 0
    for each in fleet.tables:
        if each.value is not None:
            count = each.value.health.small_file_count
            small_usd += _openings_usd(lake, each.table, count)
            small_count += count
    saved_usd = Decimal(0)
    merged_count = 0
    since_ms = now_ms - _DAYS_PER_MONTH * DAY_MS
    for reading in read_operations(lake, list(tables.values()), since_ms=since_ms):
        for operation in reading.value or ():
            if operation.kind == "compaction" and operation.is_ok:
                actual = {figure.name: figure.actual or 0 for figure in operation.figures}
                fewer_count = int(actual.get("files_removed", 0) - actual.get("files_added", 0))
                saved_usd += _openings_usd(lake, reading.table, fewer_count)
                merged_count += fewer_count
    per_read = "x the price of an opening, for one full read of all tables a day, for a month"
    return [
        FormulaCost(
            name="small files",
            usd=small_usd * _DAYS_PER_MONTH,
            formula=f"{small_count:,} small files {per_read}",
        ),
        FormulaCost(
            name="saved by compaction",
            usd=saved_usd * _DAYS_PER_MONTH,
            formula=f"{merged_count:,} fewer files by compactions of the last 30 days {per_read}",
        ),
    ]


def _openings_usd(lake: Lake, table: Table, count: int) -> Decimal:
    """The cost of opening this many files of a table."""
    return decimal_of(usd_per_opening(table.prices, on_s3=lake.on_s3(table.key))) * count


def _saved_by_inventory(
    lake: Lake, tables: Mapping[str, Table], book: PriceBook, *, now_ms: int
) -> FormulaCost:
    since_ms = now_ms - _DAYS_PER_MONTH * DAY_MS

    def lists_saved(table: Table) -> int:
        records = vacuum_records(lake.store, table.key)
        return sum(each.lists_saved for each in records if each.ended_ms >= since_ms)

    counts = for_each_table(list(tables.values()), lists_saved)
    saved_count = sum(each.value or 0 for each in counts)
    return FormulaCost(
        name="saved by inventory",
        usd=decimal_of(book.usd_per_1000_puts) * saved_count / 1_000,
        formula=f"{saved_count:,} LIST requests saved by vacuums of the last 30 days x their price",
    )


def _saved_by_archive(charges: Sequence[Charge], book: PriceBook) -> FormulaCost:
    name = "saved by archive"
    stored = [each for each in charges if each.kind == "storage"]
    if not stored:
        return FormulaCost(name=name, usd=None, formula="unknown without an inventory")
    newest_day = max(each.day for each in stored)
    archived = [each for each in stored if each.day == newest_day and each.part == "archived"]
    usd_per_gb = decimal_of(book.classes[DEFAULT_CLASS].usd_per_gb_month)
    archived_gb = sum((each.quantity for each in archived if each.is_stored), Decimal(0))
    standard_usd = archived_gb * usd_per_gb
    return FormulaCost(
        name=name,
        usd=(standard_usd - total_usd(archived)) * _DAYS_PER_MONTH,
        formula="archived GB x (the price of STANDARD - that of their class), for a month",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetReading:
    """The check of all budgets and, by scope (`lake`, a layer or a table), two amounts.

    `forecast_usd` is the forecast for this month, and `left_usd` the budget minus the forecast.
    """

    check: CheckResult
    left_usd: Mapping[str, float]
    forecast_usd: Mapping[str, float]


def read_budgets(lake: Lake, tables: Mapping[str, Table], *, now_ms: int) -> BudgetReading:
    """The budgets of a lake and its tables, compared with the forecast of the recorded charges."""
    budgets = budget_scopes(tables.values(), parse_budgets(lake.settings.budgets))
    today = day_of(now_ms)
    charges = list[Charge]()
    if budgets:
        recorded = read_charges(lake, since=month_start(now_ms))
        charges = [charge_of(row) for rows in recorded.values() for row in rows]
    left = left_usd(charges, budgets, today=today)
    return BudgetReading(
        check=assess_budgets(charges, budgets, today=today),
        left_usd={scope: float(usd) for scope, usd in left.items()},
        forecast_usd={scope: float(budgets[scope] - usd) for scope, usd in left.items()},
    )
