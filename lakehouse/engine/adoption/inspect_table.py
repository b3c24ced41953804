"""Inspects a table that others write: its log, its health, and the upkeep that is due."""

from dataclasses import replace
from threading import Lock

from lakehouse.core.adoption.inspection_report import TableFinding
from lakehouse.core.declaration.adopted import Adopted
from lakehouse.core.declaration.compaction_policy import Compaction, LiquidClustering
from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.protocol import unknown_features
from lakehouse.core.errors import LakehouseError, Refused
from lakehouse.engine.compaction.holds import compaction_risk
from lakehouse.engine.declared_tables import address_of
from lakehouse.engine.delta_log import TableFacts
from lakehouse.engine.table_health import health_of
from lakehouse.engine.vacuum.lake_facts import LakeFacts
from lakehouse.engine.vacuum.plan import plan

# `LakeFacts` is not thread-safe, and several threads inspect tables.
_ONE_AT_A_TIME = Lock()


def inspect_table(
    run: LakeFacts, table: Table, facts: TableFacts, *, known_as: str = ""
) -> TableFinding:
    """Inspects one of the run's tables. Unknown table features are refused."""
    if unknown := unknown_features(facts.snapshot.features):
        raise Refused(
            f"table {address_of(table, run.lake.settings)} has the feature {', '.join(unknown)}: "
            "this program does not know its rules for rewriting and deleting files. Use a table "
            "without this feature"
        )
    if facts.snapshot.clustering_columns and not known_as and isinstance(table.write, Adopted):
        table = replace(
            table,
            compaction=Compaction(
                data_layout=LiquidClustering(columns=facts.snapshot.clustering_columns)
            ),
        )
    try:
        with _ONE_AT_A_TIME:
            vacuum = plan(run, table) or "there is no table"
    except LakehouseError as error:
        vacuum = str(error)
    health = health_of(run.lake, table, facts)
    return TableFinding(
        table=table,
        facts=facts,
        health=health,
        vacuum=vacuum,
        risk=compaction_risk(run.lake, table, health.plan.engine.engine),
        known_as=known_as,
    )
