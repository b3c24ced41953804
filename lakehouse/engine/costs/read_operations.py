"""Reads a lake's upkeep operations from the tables' logs and the journal."""

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
from lakehouse.engine.journal.journal import Journal, vacuum_records
from lakehouse.engine.lake import Lake
from lakehouse.engine.read_each_table import Found, for_each_table


def read_operations(
    lake: Lake, tables: Sequence[Table], *, since_ms: int
) -> list[Found[list[UpkeepOperation]]]:
    """Each table's operations that ended at `since_ms` or later, as far as log and journal go back.

    A table that cannot be read has an error instead of operations.
    """

    def read(table: Table) -> list[UpkeepOperation]:
        facts = facts_of(lake, table)
        key = table.key
        prices = table.prices
        operations = list[UpkeepOperation]()
        if facts is not None:
            operations += operations_in_log(lake, table, facts, since_ms=since_ms)
        tries = Journal(lake.store).tries(key)
        operations += failed_compactions(key, tries, prices, since_ms=since_ms)
        operations += vacuums_of(key, vacuum_records(lake.store, key), prices, since_ms=since_ms)
        return sorted(operations, key=lambda each: each.ended_ms)

    return for_each_table(tables, read)


def operations_in_log(
    lake: Lake, table: Table, facts: TableFacts, *, since_ms: int
) -> list[UpkeepOperation]:
    """The operations that a table's log records and that ended at `since_ms` or later.

    `facts` contain only the newest commits. Older commits are read from the log.
    """
    key = table.key
    prices = table.prices
    history = history_back_to(lake.store, facts.history, since_ms)
    account = account_for(history, prices=prices, on_s3=facts.snapshot.on_s3)
    return [
        *compactions_of(key, account.entries, prices, since_ms=since_ms),
        *moves_of(key, history, prices, since_ms=since_ms),
    ]
