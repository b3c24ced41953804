"""Upkeep stands beside its table, and comes last in a run of everything."""

from typing import Any

import dagster as dg
import pytest

from lakehouse import Vacuum, table
from lakehouse.assets.keys import compaction_key, table_key, vacuum_key
from lakehouse.assets.resources import spark_resource
from lakehouse.compact.asset import compaction_asset
from lakehouse.declare.table import Overwrite
from lakehouse.lake.lake import Lake
from lakehouse.vacuum.asset import vacuum_asset
from lakehouse_tests.support.example_assets import orders


@table(
    key="silver/counts", inputs=[orders], write=Overwrite(), vacuum=Vacuum(after_compaction=True)
)
def counts(orders: Any) -> Any:
    """One row for all."""
    return orders.groupBy().count()


TABLES = (orders, counts)


def upkeep_of(lake: Lake) -> list[dg.AssetsDefinition]:
    vacuums = [vacuum_asset(each, lake, lambda: (lake, TABLES)) for each in TABLES]
    return [*vacuums, *(compaction_asset(each, lake) for each in TABLES)]


@pytest.mark.usefixtures("no_java")
def test_in_a_run_of_everything_upkeep_comes_last_and_a_table_that_is_not_made_yet_fails_none(
    dagster_lake: Lake, instance: dg.DagsterInstance
) -> None:
    bronze, silver = map(table_key, TABLES)

    @dg.asset(key=bronze)
    def write_orders() -> None: ...

    @dg.asset(key=silver, deps=[bronze])
    def write_counts() -> None: ...

    result = dg.materialize(
        [*upkeep_of(dagster_lake), write_orders, write_counts],
        resources={"spark": spark_resource(dagster_lake.settings)},
        instance=instance,
    )
    begun = [
        each.step_key
        for each in instance.all_logs(result.run_id, of_type=dg.DagsterEventType.STEP_START)
    ]
    upkeep = ["compaction__bronze__orders", "compaction__silver__counts", "vacuum__bronze__orders"]
    # A vacuum that follows its compaction is passed over with it.
    assert begun == ["bronze__orders", "silver__counts", *upkeep]
    assert [
        instance.get_latest_materialization_event(key_of(orders))
        for key_of in (compaction_key, vacuum_key)
    ] == [None, None]
