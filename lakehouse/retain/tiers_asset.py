"""One asset per table on S3 with `Vacuum(tiers=True)`: tags removed files once a day."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import dagster as dg

from lakehouse.assets.failures import errors_for_dagster
from lakehouse.assets.upkeep import NIGHTLY_CRON, by_clock, upkeep_options
from lakehouse.declare.table import Table
from lakehouse.lake.lake import Lake


def tiers_asset(
    table: Table, load_lake: Callable[[], tuple[Lake, Sequence[Table]]]
) -> dg.AssetsDefinition:
    """The daily asset that tags a table's removed files. `load_lake` is called in a run."""

    @dg.asset(
        **{**upkeep_options("tiers", table), "required_resource_keys": set()},
        automation_condition=by_clock(NIGHTLY_CRON),
        description=f"Tags the removed files that {table.key} keeps for more than a month. A "
        "lifecycle rule of the bucket moves them to cheaper storage classes.",
    )
    def tiers(context: dg.AssetExecutionContext) -> dg.MaterializeResult[Any] | None:
        from lakehouse.retain.run.tiers import run
        from lakehouse.vacuum.lake_facts import LakeFacts

        with errors_for_dagster(context):
            lake, declared = load_lake()
            plan = run(LakeFacts(lake, declared, wanted={table.key}), table)
        if plan is None:
            context.log.info(f"{table.key} has not been written yet")
            return None
        context.log.info(f"{table.key}: {plan.sentence}")
        metadata = {
            "lakehouse/tagged": len(plan.tag),
            "lakehouse/untagged": len(plan.untag),
            "lakehouse/size_bytes": plan.size_bytes,
        }
        return dg.MaterializeResult(metadata=metadata)

    return cast("dg.AssetsDefinition", tiers)
