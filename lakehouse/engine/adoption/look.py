"""A table that others write, looked at: its log, its health, what a compaction and a vacuum would do. Nothing is written."""

from threading import Lock

from lakehouse.core.adoption.adopted import Adopted
from lakehouse.core.adoption.adopted_file import adopted_table
from lakehouse.core.adoption.finding import TableFinding
from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.features import unknown_features
from lakehouse.core.errors import LakehouseError, Refused
from lakehouse.core.vacuum.plan import VacuumPlan
from lakehouse.engine.declared_tables import address_of
from lakehouse.engine.delta_log import TableFacts
from lakehouse.engine.table_health import health_of
from lakehouse.engine.vacuum.lake_facts import LakeFacts
from lakehouse.engine.vacuum.table_facts import plan

# What a run of vacuums knows of all tables is one thread's; tables are looked at by several.
_ONE_AT_A_TIME = Lock()


def look_at(run: LakeFacts, table: Table, facts: TableFacts, *, known_as: str = "") -> TableFinding:
    """The finding of one of the run's tables, whose log says `facts`; a clustered one is declared by the columns that it is clustered by.

    Raises:
        Refused: it has a feature that is not known here.
    """
    if unknown := unknown_features(facts.snapshot.features):
        raise Refused(
            f"table {address_of(table, run.lake.settings)} has the feature {', '.join(unknown)}: what a rewrite or a deletion does under "
            "it is not known here; accepted: tables without it"
        )
    write = table.write
    if facts.snapshot.clustering_columns and not known_as and isinstance(write, Adopted):
        table = adopted_table(
            table.key, write.uri, writers=write.writers, orphans=write.orphans, cluster_by=facts.snapshot.clustering_columns
        )
    return TableFinding(
        table=table,
        snapshot=facts.snapshot,
        history=facts.history,
        health=health_of(table, facts),
        vacuum=_vacuum(run, table),
        known_as=known_as,
    )


def _vacuum(run: LakeFacts, table: Table) -> VacuumPlan | str:
    try:
        with _ONE_AT_A_TIME:
            return plan(run, table) or "there is no table"
    except LakehouseError as error:
        return str(error)
