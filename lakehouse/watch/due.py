"""Plans every operation of every table, and ranks them, for `lakehouse plan` and the report page.

The facts are in logs, the lake's own tables and the declarations. No JVM starts, no table's folder
is listed, and nothing is written. A vacuum is planned from the log alone, and a changed declaration
without the columns that only Spark knows.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import LakehouseError
from lakehouse.base.frozen import frozen
from lakehouse.base.installation import has_capability, load_capability
from lakehouse.base.operation import Operation, ranked
from lakehouse.compact.assess import FleetReading, read_fleet
from lakehouse.declare.prices import PriceBook
from lakehouse.declare.table import Table
from lakehouse.delta.snapshot import TableFacts
from lakehouse.evolve.compare import compare_without_spark
from lakehouse.lake.declared_tables import load_price_book
from lakehouse.lake.lake import Found, Lake
from lakehouse.lake.state_tables import vacuum_records
from lakehouse.vacuum.plan.vacuum import operation_by_log

# What a pause stops. The decision about a compaction knows of the pause.
_PAUSED = ("vacuum", "archive", "ttl")


@frozen
class DueReading:
    """All operations, ranked.

    `errors` are of tables that cannot be read, and of operations that cannot be planned.
    """

    operations: tuple[Operation, ...]
    fleet: FleetReading
    errors: tuple[Found[Any], ...]


def plan_operations(
    lake: Lake,
    declared: Mapping[str, Table],
    tables: Sequence[Table],
    *,
    on_facts: Callable[[Table, TableFacts], None] | None = None,
) -> DueReading:
    """Plans the operations of `tables`. For the other arguments, see `read_fleet`."""
    book = load_price_book(lake.settings)
    planned = list[Operation]()
    errors = list[Found[Any]]()

    def take(table: Table, facts: TableFacts) -> None:
        if on_facts is not None:
            on_facts(table, facts)
        try:
            for operation in _plans(lake, table, facts, book):
                planned.append(operation)
        except LakehouseError as error:
            errors.append(Found(table=table, error=error))

    fleet = read_fleet(lake, declared, tables, on_facts=take)
    errors += [each for each in fleet.tables if each.error]
    pauses = {each.table.key: each.value.known.pause for each in fleet.tables if each.value}
    operations = [*fleet.operations]
    for operation in planned:
        pause = pauses.get(operation.table)
        if pause is not None and pause.holds(now_ms()) and operation.operation in _PAUSED:
            why = pause.explanation
            operation = replace(operation, reason=why.reason.name, sentence=why.sentence)
        operations.append(operation)
    return DueReading(operations=tuple(ranked(operations)), fleet=fleet, errors=tuple(errors))


def _plans(lake: Lake, table: Table, facts: TableFacts, book: PriceBook) -> Iterator[Operation]:
    """Plans the operations of a table, apart from compaction."""
    if table.vacuum.mode != "off":
        records = vacuum_records(lake, table.key)
        last = next((each for each in reversed(records) if each.is_complete), None)
        yield operation_by_log(table, facts, last, book, now_ms=now_ms())
    if not table.adopted:
        yield compare_without_spark(lake, table, facts).operation(facts.snapshot.size_bytes)
    if (table.archive or table.ttl) and has_capability("retain"):
        yield load_capability("retain.run.ttl").operation(lake, table, facts, book)
