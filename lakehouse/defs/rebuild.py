"""Reports a rebuild or a restore, which run outside of Dagster, on the page of the table."""

import dagster as dg

from lakehouse.core.declaration.table import Table
from lakehouse.core.evolution.rebuild import RebuildOutcome
from lakehouse.defs.keys import table_key
from lakehouse.defs.metadata.table import table_metadata
from lakehouse.defs.table_assets import data_version
from lakehouse.engine.lake import Lake
from lakehouse.engine.table_health import assess

# Source: dagster 1.13, data_version.py, DATA_VERSION_TAG
_DATA_VERSION = "dagster/data_version"


def rebuild_event(
    table: Table, lake: Lake, outcome: RebuildOutcome
) -> dg.AssetMaterialization | dg.AssetObservation:
    """A materialization, which updates downstream tables; if no row changed, an observation."""
    metadata = {
        **table_metadata(table, assess(lake, table, outcome.facts)),
        "lakehouse/outcome": outcome.sentence,
    }
    if outcome.plan.rows == "same":
        return dg.AssetObservation(table_key(table), metadata=metadata)
    tags = {_DATA_VERSION: data_version(outcome.facts)}
    return dg.AssetMaterialization(table_key(table), metadata=metadata, tags=tags)


def restore_event(table: Table, lake: Lake, sentence: str) -> dg.AssetObservation | None:
    """An observation of a table whose archived rows were restored. Does not update other tables.

    `None` if the table does not exist.
    """
    facts = lake.facts(table.key)
    if facts is None:
        return None
    metadata = {**table_metadata(table, assess(lake, table, facts)), "lakehouse/outcome": sentence}
    return dg.AssetObservation(table_key(table), metadata=metadata)
