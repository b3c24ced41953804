"""Compares a table with its declaration without Spark, and so less exactly than `evolve.run`."""

from functools import partial

from lakehouse.declare.table import Table
from lakehouse.delta.log import TableFacts, newest_first
from lakehouse.evolve.plan.changes import Change, EvolutionPlan, Kind, compare
from lakehouse.evolve.plan.rebuild import columns_without_spark
from lakehouse.lake.lake import Lake
from lakehouse.land.ledger import planned_batches
from lakehouse.land.plan.records import columns_in_force
from lakehouse.materialize.plan import code_changed_since, declared_way, other_way


def compare_without_spark(lake: Lake, table: Table, facts: TableFacts) -> EvolutionPlan:
    """The changes that are visible without Spark: in the log, the ledger and the declaration.

    Without Spark, the columns of a function and the types of derived columns are unknown.
    """
    columns = None
    if table.source is not None:
        ledger = planned_batches(lake, table).ledger()
        added_columns = columns_in_force(ledger.columns, table.source)
        # If an added column was renamed, the declaration has its new name.
        added = [name for name in added_columns if name not in table.renamed]
        columns = columns_without_spark(table.source, facts.snapshot, added)
    return compare(table, columns, facts.snapshot, changes_of_rows(lake, table, facts))


def changes_of_rows(lake: Lake, table: Table, facts: TableFacts) -> list[Change]:
    """The changes of a derived table's write mode, keys and code, by what its log records."""
    changes = list[Change]()
    if table.source is not None:
        return changes
    commits = partial(newest_first, lake.store, facts.history)
    other = None if table.is_overwrite else other_way(table, commits())
    if other is not None:
        sentence = f"its rows are to be {declared_way(table)}, and were {other[0]}"
        changes.append(Change(kind=Kind.WRITE_CHANGED, sentence=sentence))
    code_since = code_changed_since(commits(), table.transform_code)
    if code_since is not None:
        sentence = (
            f"its code has changed since version {code_since}, and existing rows were made by the"
            " earlier code"
        )
        changes.append(Change(kind=Kind.CODE_CHANGED, sentence=sentence))
    return changes
