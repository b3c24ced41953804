"""Upkeep stands beside its table: no write makes it look out of date, and a compaction sets nothing off but its own vacuum."""

from typing import Any

import dagster as dg
import pytest

from lakehouse import Vacuum, table
from lakehouse.assets.keys import compaction_key, inventory_key, table_key, vacuum_key
from lakehouse.assets.resources import spark_resource
from lakehouse.compact.asset import compaction_asset
from lakehouse.declare.write_modes import Overwrite
from lakehouse.lake.lake import Lake
from lakehouse.land.asset import landing_assets
from lakehouse.materialize.asset import table_asset
from lakehouse.vacuum.asset import vacuum_asset
from lakehouse.vacuum.inventory.asset import inventory_asset
from lakehouse_tests.support.dagster_events import materialized, observed
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


@pytest.fixture
def definitions(dagster_lake: Lake) -> dg.Definitions:
    assets = [
        *landing_assets(TABLES, dagster_lake),
        *(table_asset(each, dagster_lake) for each in TABLES),
        *upkeep_of(dagster_lake),
        inventory_asset(TABLES, dagster_lake),
    ]
    return dg.Definitions(assets=assets, resources={"spark": spark_resource(dagster_lake.settings)})


def test_neither_a_write_nor_the_look_at_a_table_sets_off_a_vacuum_and_a_compaction_only_its_own(
    definitions: dg.Definitions, instance: dg.DagsterInstance, dagster_lake: Lake
) -> None:
    upkeep = [compaction_key(each) for each in TABLES] + [vacuum_key(each) for each in TABLES]
    for place, each in enumerate(TABLES):
        materialized(instance, each, data_version=f"{place}")
    for key in (inventory_key(dagster_lake), *upkeep):
        instance.report_runless_asset_event(dg.AssetMaterialization(key))
    seen = dg.evaluate_automation_conditions(definitions, instance)
    seen = dg.evaluate_automation_conditions(definitions, instance, cursor=seen.cursor)

    def asked() -> set[dg.AssetKey]:
        nonlocal seen
        seen = dg.evaluate_automation_conditions(definitions, instance, cursor=seen.cursor)
        return {key for key in (*upkeep, *map(table_key, TABLES)) if seen.get_num_requested(key)}

    for each in TABLES:
        observed(instance, each, file_count=1)
    assert asked() == set()
    materialized(instance, counts, data_version="2")
    assert asked() == set()
    instance.report_runless_asset_event(dg.AssetMaterialization(compaction_key(orders)))
    assert asked() == set()
    instance.report_runless_asset_event(dg.AssetMaterialization(compaction_key(counts)))
    assert asked() == {vacuum_key(counts)}


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
    assert begun == [
        "bronze__orders",
        "silver__counts",
        *upkeep,
    ]  # a vacuum that follows its compaction is passed over with it
    assert [
        instance.get_latest_materialization_event(key_of(orders))
        for key_of in (compaction_key, vacuum_key)
    ] == [None, None]
