"""The costs of a lake as two assets: `costs/operations` and `costs/chargeback`.

The assets run after each inventory. The check `budget` fails if the forecast for the present month
is above a budget.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

import dagster as dg

from lakehouse.core.costs.exact_amounts import day_of
from lakehouse.core.declaration.table import Table
from lakehouse.defs.failures import errors_for_dagster
from lakehouse.defs.health import check_fields
from lakehouse.defs.keys import costs_key, inventory_key
from lakehouse.defs.resources import LazyPySparkResource, open_session
from lakehouse.engine.clock import now_ms
from lakehouse.engine.lake import Lake

if TYPE_CHECKING:
    from lakehouse.engine.costs.operations_table import CostsSession, CostsWritten

# The metadata key of the month's forecasts in USD, by budget scope (a table's key, a layer, or
# `lake`). The compaction sensor reads them.
FORECAST_USD = "lakehouse/forecast_usd"


def costs_assets(tables: Sequence[Table], lake: Lake) -> list[dg.AssetsDefinition]:
    """The assets `costs/operations` and `costs/chargeback`."""
    return [_operations_asset(tables, lake), _chargeback_asset(tables, lake)]


def published_left_usd(
    instance: dg.DagsterInstance, budgets: Mapping[str, Decimal], *, now_ms: int
) -> Mapping[str, float]:
    """Each budget minus its forecast in the newest materialization of `costs/chargeback`, by scope.

    Scopes without a forecast are omitted: all of them, if that materialization is from an earlier
    month.
    """
    event = instance.get_latest_materialization_event(costs_key("chargeback"))
    if event is None or event.asset_materialization is None:
        return {}
    written_ms = round(event.timestamp * 1_000)
    recorded = event.asset_materialization.metadata.get(FORECAST_USD)
    is_of_month = day_of(written_ms).replace(day=1) == day_of(now_ms).replace(day=1)
    if not is_of_month or not isinstance(recorded, dg.JsonMetadataValue):
        return {}
    forecasts = cast("dict[str, float]", recorded.value)
    return {
        scope: float(usd) - forecasts[scope] for scope, usd in budgets.items() if scope in forecasts
    }


def _session(
    context: dg.AssetExecutionContext,
    spark: LazyPySparkResource,
    tables: Sequence[Table],
    lake: Lake,
) -> "CostsSession":
    """The session in which a run writes a cost table."""
    from lakehouse.engine.costs.operations_table import CostsSession

    return CostsSession(
        lake=lake,
        tables={table.key: table for table in tables},
        spark=open_session(context, spark),
        owner=f"run {context.run.run_id}",
    )


def _operations_asset(tables: Sequence[Table], lake: Lake) -> dg.AssetsDefinition:
    key = costs_key("operations")

    @_asset_of_costs(
        lake,
        key,
        description="Each upkeep operation with its measured work and its cost, by day. The "
        "columns follow Databricks' predictive optimization history.",
    )
    def operations(
        context: dg.AssetExecutionContext, spark: LazyPySparkResource
    ) -> dg.MaterializeResult[Any]:
        from lakehouse.engine.costs.operations_table import write_operations

        with errors_for_dagster(context):
            costs = _session(context, spark, tables, lake)
            outcome = write_operations(costs, now_ms=now_ms())
        return dg.MaterializeResult(metadata=_metadata(context, outcome))

    return operations


def _chargeback_asset(tables: Sequence[Table], lake: Lake) -> dg.AssetsDefinition:
    key = costs_key("chargeback")

    @_asset_of_costs(
        lake,
        key,
        description="What each table cost on each day: stored bytes, compute and requests. The "
        "columns follow FOCUS 1.3, Cost and Usage.",
        check_specs=[
            dg.AssetCheckSpec(
                "budget",
                asset=key,
                description="The present month stays within the budgets.",
            )
        ],
    )
    def chargeback(
        context: dg.AssetExecutionContext, spark: LazyPySparkResource
    ) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
        from lakehouse.engine.costs.chargeback_table import write_chargeback
        from lakehouse.engine.costs.read_ledger import read_budgets

        with errors_for_dagster(context):
            costs = _session(context, spark, tables, lake)
            outcome = write_chargeback(costs, now_ms=now_ms())
            budgets = read_budgets(lake, costs.tables, now_ms=now_ms())
        metadata = {
            **_metadata(context, outcome),
            "lakehouse/corrected_usd": float(outcome.corrected_usd),
            FORECAST_USD: dg.MetadataValue.json(dict(budgets.forecast_usd)),
        }
        yield dg.MaterializeResult(asset_key=key, metadata=metadata)
        yield dg.AssetCheckResult(asset_key=key, **check_fields(budgets.check))

    return chargeback


def _asset_of_costs(
    lake: Lake, key: dg.AssetKey, *, description: str, check_specs: Sequence[dg.AssetCheckSpec] = ()
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """The decorator `dg.asset` for a cost table that is written after each inventory."""
    condition = dg.AutomationCondition
    return dg.asset(
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
        description=description,
        check_specs=check_specs,
    )


def _metadata(context: dg.AssetExecutionContext, outcome: "CostsWritten") -> dict[str, Any]:
    """Metadata about what a run wrote. Each table that could not be read gets a warning."""
    for table, why in outcome.unread.items():
        context.log.warning(f"the operations of {table} are missing from the costs: {why}")
    return {
        "lakehouse/days": ", ".join(map(str, outcome.days)) or "none",
        "lakehouse/rows": outcome.row_count,
        "lakehouse/unread_tables": len(outcome.unread),
    }
