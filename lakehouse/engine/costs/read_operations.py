"""Reads the operations of upkeep of a lake: from the tables' logs, and from the journal."""

from collections.abc import Sequence

from lakehouse.core.costs.compaction_history import account_for
from lakehouse.core.costs.operations import (
    UpkeepOperation,
    compactions_of,
    failed_compactions,
    moves_of,
    vacuums_of,
)
from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.snapshot import TableFacts
from lakehouse.engine.adoption.find_tables import facts_of
from lakehouse.engine.delta_log import history_back_to
from lakehouse.engine.each_table import Found, for_each_table
from lakehouse.engine.journal.journal import Journal, vacuum_records
from lakehouse.engine.lake import Lake


def read_operations(
    lake: Lake, tables: Sequence[Table], *, since_ms: int
) -> list[Found[list[UpkeepOperation]]]:
    """The operations of each table that ended since a time, as far as its log and journal go back.

    A table that cannot be read has its error instead.
    """

    def read(table: Table) -> list[UpkeepOperation]:
        facts = facts_of(lake, table)
        key = table.key
        prices = table.prices
        found = [] if facts is None else operations_in_log(lake, table, facts, since_ms=since_ms)
        found += failed_compactions(key, Journal(lake.store).tries(key), prices, since_ms=since_ms)
        found += vacuums_of(key, vacuum_records(lake.store, key), prices, since_ms=since_ms)
        return sorted(found, key=lambda each: each.ended_ms)

    return for_each_table(tables, read)


def operations_in_log(
    lake: Lake, table: Table, facts: TableFacts, *, since_ms: int, all_since_ms: int | None = None
) -> list[UpkeepOperation]:
    """The operations in a table's log that ended since a time, without those in the journal.

    The facts hold the newest commits only, so older ones are read. Those before `all_since_ms`,
    a later time, are not.
    """
    key = table.key
    prices = table.prices
    read_ms = since_ms if all_since_ms is None else all_since_ms
    history = history_back_to(lake.store, facts.history, read_ms)
    account = account_for(history, prices=prices, on_s3=facts.snapshot.on_s3)
    return [
        *compactions_of(key, account.entries, prices, since_ms=since_ms),
        *moves_of(key, history, prices, since_ms=since_ms),
    ]
