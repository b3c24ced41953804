"""The costs as Dagster shows them."""

from typing import Any

import dagster as dg
import pytest
from deltalake import DeltaTable

from lakehouse.assets.resources import spark_resource
from lakehouse.base.clock import now_ms
from lakehouse.lake.lake import Lake
from lakehouse.vacuum.inventory.run import scan
from lakehouse.watch.costs.asset import chargeback_asset
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.watch.costs.story import A


@pytest.mark.spark
def test_the_chargeback_is_written(
    dagster_lake: Lake, settings: Any, instance: dg.DagsterInstance
) -> None:
    LogBuilder(dagster_lake.store, A.key).create().append([("a", 9_000_000)]).store_data()
    scan(dagster_lake, now_ms=now_ms())
    result = dg.materialize(
        [chargeback_asset([A], dagster_lake)],
        resources={"spark": spark_resource(settings)},
        instance=instance,
    )
    [written] = result.asset_materializations_for_node("costs__chargeback")
    rows = DeltaTable(dagster_lake.table_uri("costs/chargeback")).to_pyarrow_table()
    assert written.metadata["lakehouse/rows"].value == rows.num_rows > 1
    assert written.metadata["lakehouse/usd"].value > 0
