"""The costs of a lake as the asset `costs/chargeback`, which runs after each inventory."""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from lakehouse.assets.keys import inventory_key
from lakehouse.assets.resources import LazyPySparkResource, open_session
from lakehouse.assets.runs import errors_for_dagster
from lakehouse.base.clock import now_ms
from lakehouse.declare.table import Table
from lakehouse.lake.lake import Lake


def chargeback_asset(tables: Sequence[Table], lake: Lake) -> dg.AssetsDefinition:
    """The asset `costs/chargeback`."""
    key = dg.AssetKey(["costs", "chargeback"])
    condition = dg.AutomationCondition

    @dg.asset(
        key=key,
        deps=[inventory_key(lake)],
        group_name="costs",
        kinds={"deltalake"},
        pool="_".join(key.path),
        metadata={
            "dagster/uri": lake.settings.table_uri("/".join(key.path)),
            "dagster/storage_kind": "deltalake",
        },
        automation_condition=condition.any_deps_updated() & ~condition.in_progress(),
        description="What each table cost on each day: stored bytes, compute and requests. The "
        "columns have the names of FOCUS 1.3, Cost and Usage.",
    )
    def chargeback(
        context: dg.AssetExecutionContext, spark: LazyPySparkResource
    ) -> dg.MaterializeResult[Any]:
        from lakehouse.watch.costs.run import write_chargeback

        with errors_for_dagster(context):
            charges = write_chargeback(
                lake,
                {table.key: table for table in tables},
                spark=open_session(context, spark),
                owner=f"run {context.run.run_id}",
                now_ms=now_ms(),
            )
        days = sorted({str(each["x_day"]) for each in charges})
        return dg.MaterializeResult(
            metadata={
                "lakehouse/days": ", ".join(days) or "none",
                "lakehouse/rows": len(charges),
                "lakehouse/usd": float(sum(each["BilledCost"] for each in charges)),
            }
        )

    return chargeback
