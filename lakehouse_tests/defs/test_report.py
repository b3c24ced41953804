"""The morning page as an asset: stored below the lake, and linked."""

from datetime import UTC, datetime, timedelta

import dagster as dg

from lakehouse.defs.report import report_asset
from lakehouse.engine.lake import Lake
from lakehouse_tests.defs.example import TABLES
from lakehouse_tests.log_builder import LogBuilder


def test_the_asset_stores_the_page_below_the_lake_and_links_it(
    instance: dg.DagsterInstance, lake: Lake
) -> None:
    LogBuilder(lake.store, "bronze/orders").create().append([("a", 100, 1)])
    asset = report_asset(lambda: (lake, TABLES))
    result = dg.materialize([asset], instance=instance)
    [made] = result.asset_materializations_for_node("report__daily")
    assert made.metadata["lakehouse/page"].value == (
        f"{lake.settings.root}/_lakehouse/reports/report.html"
    )
    html = lake.store.read("_lakehouse/reports/report.html").decode()
    assert "bronze/<wbr>orders" in html


def test_the_page_is_made_soon_after_the_first_inventory_and_every_morning(
    instance: dg.DagsterInstance, lake: Lake
) -> None:
    inventory = dg.AssetKey("inventory")
    asset = report_asset(lambda: (lake, TABLES), after=[inventory])
    definitions = dg.Definitions(assets=[asset, dg.AssetSpec(inventory)])
    cursor = None

    def requested(at: datetime) -> int:
        nonlocal cursor
        result = dg.evaluate_automation_conditions(
            definitions, instance, cursor=cursor, evaluation_time=at
        )
        cursor = result.cursor
        return result.total_requested

    night = datetime(2026, 11, 27, 4, 30, tzinfo=UTC)
    assert requested(night) == 0
    instance.report_runless_asset_event(dg.AssetMaterialization(inventory))
    assert [requested(night + timedelta(minutes=minute)) for minute in (1, 2)] == [1, 0]
    instance.report_runless_asset_event(dg.AssetMaterialization(asset.key))
    instance.report_runless_asset_event(dg.AssetMaterialization(inventory))
    assert [requested(night + timedelta(minutes=minute)) for minute in (60, 95, 96)] == [0, 1, 0]
