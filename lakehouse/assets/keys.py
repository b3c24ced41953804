"""Dagster's names for a table, its upkeep and its inputs: asset keys and pools."""

from functools import partial

import dagster as dg

from lakehouse.declare.adopted import Adopted
from lakehouse.declare.landing import Landing
from lakehouse.declare.table import Table
from lakehouse.lake.lake import Lake


def table_key(table: Table) -> dg.AssetKey:
    """The asset key of a table: layer and name, or the key of the asset that writes it."""
    if isinstance(table.write, Adopted) and table.write.asset_key:
        return dg.AssetKey(list(table.write.asset_key))
    return dg.AssetKey(table.asset_key.split("/"))


def upkeep_key(operation: str, table: Table) -> dg.AssetKey:
    """The asset key of an upkeep operation on a table: operation, layer, name."""
    return dg.AssetKey([operation, *table.key.split("/")])


compaction_key = partial(upkeep_key, "compaction")
vacuum_key = partial(upkeep_key, "vacuum")
tiers_key = partial(upkeep_key, "tiers")
archive_key = partial(upkeep_key, "archive")
ttl_key = partial(upkeep_key, "ttl")


def landing_key(landing: Landing) -> dg.AssetKey:
    """The asset key of the files below a landing prefix: landing, then the prefix's folders."""
    parts = landing.prefix.removeprefix("landing/").split("/")
    return dg.AssetKey(["landing", *(part for part in parts if part)])


def inventory_key(lake: Lake) -> dg.AssetKey:
    """The asset key of the inventory of a lake's bucket: inventory, bucket."""
    return dg.AssetKey(["inventory", lake.store.bucket])


def costs_key() -> dg.AssetKey:
    """The asset key of the table of costs."""
    return dg.AssetKey(["costs", "chargeback"])


def report_key(name: str = "daily") -> dg.AssetKey:
    """The asset key of a report: report, name."""
    return dg.AssetKey(["report", name])


def pool_of(table: Table) -> str:
    """The pool shared by all runs that change a table: its writes and its upkeep."""
    if isinstance(table.write, Adopted) and table.write.pool:
        return table.write.pool
    return f"table_{table.key.replace('/', '_')}"
