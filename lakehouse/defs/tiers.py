"""One asset per table on S3 with `Vacuum(tiers=True)`: tags removed files once a day."""

from collections.abc import Callable, Sequence
from typing import Any

import dagster as dg

from lakehouse.core.declaration.table import Table
from lakehouse.defs.failures import errors_for_dagster
from lakehouse.defs.keys import pool_of, table_key, tiers_key
from lakehouse.defs.upkeep_times import NIGHTLY_CRON
from lakehouse.engine.lake import Lake


def tiers_asset(
    table: Table, load_lake: Callable[[], tuple[Lake, Sequence[Table]]]
) -> dg.AssetsDefinition:
    """The daily asset that tags a table's removed files. `load_lake` is called in a run."""

    @dg.asset(
        key=tiers_key(table),
        metadata={"lakehouse/table": dg.MetadataValue.asset(table_key(table))},
        group_name="vacuum",
        kinds={"deltalake", "s3"},
        pool=pool_of(table),
        output_required=False,
        automation_condition=dg.AutomationCondition.cron_tick_passed(NIGHTLY_CRON)
        & ~dg.AutomationCondition.in_progress(),
        description=f"Tags the removed files that {table.key} keeps for more than a month. A "
        "lifecycle rule of the bucket moves them to cheaper storage classes.",
    )
    def tiers(context: dg.AssetExecutionContext) -> dg.MaterializeResult[Any] | None:
        from lakehouse.engine.tiers.run import run
        from lakehouse.engine.vacuum.lake_facts import LakeFacts

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

    return tiers
