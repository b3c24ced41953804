"""Dagster's names for tables and upkeep, and what the assets of all upkeep share.

Times are cron expressions in UTC. Those of scheduled compactions are declared per table
(`Scheduled.cron`).
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import dagster as dg

from lakehouse.declare.landing import Landing
from lakehouse.declare.table import Table
from lakehouse.lake.lake import Lake

# Loads a lake with all of its tables, in a run and never while definitions are loaded.
LoadLake = Callable[[], tuple[Lake, Sequence[Table]]]


def table_key(table: Table) -> dg.AssetKey:
    """The asset key of a table: layer and name, or the key of the asset that writes it."""
    if table.adopted and table.adopted.asset_key:
        return dg.AssetKey(list(table.adopted.asset_key))
    return dg.AssetKey(table.asset_key.split("/"))


def upkeep_key(operation: str, table: Table) -> dg.AssetKey:
    """The asset key of an upkeep operation on a table: operation, layer, name."""
    return dg.AssetKey([operation, *table.key.split("/")])


compaction_key = partial(upkeep_key, "compaction")
vacuum_key = partial(upkeep_key, "vacuum")


def landing_key(landing: Landing) -> dg.AssetKey:
    """The asset key of the files below a landing prefix: landing, then the prefix's folders."""
    parts = landing.prefix.removeprefix("landing/").split("/")
    return dg.AssetKey(["landing", *(part for part in parts if part)])


def inventory_key(lake: Lake) -> dg.AssetKey:
    """The asset key of the inventory of a lake's bucket: inventory, bucket."""
    return dg.AssetKey(["inventory", lake.store.bucket])


def pool_of(table: Table) -> str:
    """The pool shared by all runs that change a table: its writes and its upkeep."""
    if table.adopted and table.adopted.pool:
        return table.adopted.pool
    return f"table_{table.key.replace('/', '_')}"


# The inventory of a lake runs at this time and, by default, so do the vacuums of `maintain`, which
# has no inventory. Usually, nightly loads are over, and the loads of the day have not begun.
NIGHTLY_CRON = "0 5 * * *"
# `maintenance/records` deletes Dagster's old records, which grow by about 2 GB a day.
RECORDS_CRON = "0 * * * *"
# The report is written an hour after the inventory. By then, the vacuums that the inventory
# requests are usually over.
REPORT_CRON = "0 6 * * *"
# Expired rows are deleted before the inventory and the vacuums run.
TTL_CRON = "30 4 * * *"
# Old partitions move to the archive before the TTL runs, so that no row expires instead of moving.
ARCHIVE_CRON = "0 4 * * *"


def upkeep_options(operation: str, table: Table, *, resource: str = "spark") -> dict[str, Any]:
    """The options of the asset of an operation on a table. `resource` opens its Spark session.

    The asset depends on no other asset. Otherwise, Dagster 1.13 shows "Unsynced" after each write,
    although there may be nothing to do. The metadata of the asset and of its table link each other.
    """
    return {
        "key": upkeep_key(operation, table),
        "metadata": {"lakehouse/table": dg.MetadataValue.asset(table_key(table))},
        "op_tags": {"dagster/priority": "-1"},  # after the writes of the same run
        "group_name": operation,
        "kinds": {"deltalake", "pyspark"},
        "pool": pool_of(table),
        "output_required": False,
        "required_resource_keys": {resource},
    }


def by_clock(cron: str) -> dg.AutomationCondition[Any]:
    """Requests a run at these times, unless one is in progress."""
    condition = dg.AutomationCondition
    return condition.cron_tick_passed(cron) & ~condition.in_progress()


def automation_sensor(
    assets: Iterable[Any], *, name: str = "automation_sensor"
) -> dg.AutomationConditionSensorDefinition:
    """Requests runs of those of the assets that have an automation condition.

    Dagster's own sensor for conditions is off by default.
    """
    automated = [
        key
        for asset in assets
        if isinstance(asset, dg.AssetsDefinition)
        for key, condition in asset.automation_conditions_by_key.items()
        if condition is not None
    ]
    return dg.AutomationConditionSensorDefinition(
        name=name,
        target=dg.AssetSelection.assets(*automated),
        default_status=dg.DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=10,
    )
