"""The morning page as an asset: stored below the lake, and linked."""

import dagster as dg

from lakehouse.lake.lake import Lake
from lakehouse.report.asset import report_asset
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.support.example_assets import TABLES


def test_the_asset_stores_the_page_below_the_lake_and_links_it(
    instance: dg.DagsterInstance, dagster_lake: Lake
) -> None:
    LogBuilder(dagster_lake.store, "bronze/orders").create().append([("a", 100, 1)])
    asset = report_asset(lambda: (dagster_lake, TABLES))
    result = dg.materialize([asset], instance=instance)
    [made] = result.asset_materializations_for_node("report__daily")
    assert made.metadata["lakehouse/page"].value == (
        f"{dagster_lake.settings.root}/_lakehouse/reports/report.html"
    )
    html = dagster_lake.store.read("_lakehouse/reports/report.html").decode()
    assert "bronze/<wbr>orders" in html
