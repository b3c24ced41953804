"""The costs as Dagster shows them."""

from typing import Any

import dagster as dg
import pytest
from deltalake import DeltaTable

from lakehouse import Append, Landing, Table
from lakehouse.assets.resources import spark_resource
from lakehouse.base.clock import now_ms
from lakehouse.base.errors import Refused
from lakehouse.lake.lake import Lake
from lakehouse.vacuum.inventory.run import scan
from lakehouse.watch.costs.asset import chargeback_asset
from lakehouse_tests.log_builder import LogBuilder

TABLE = Table(
    key="bronze/a",
    source=Landing(prefix="landing/a/", format="json", schema="id BIGINT"),
    write=Append(),
)


@pytest.mark.spark
def test_the_chargeback_is_written(
    dagster_lake: Lake, settings: Any, instance: dg.DagsterInstance
) -> None:
    LogBuilder(dagster_lake.store, TABLE.key).create().append([("a", 9_000_000)]).store_data()
    scan(dagster_lake, now_ms=now_ms())
    result = dg.materialize(
        [chargeback_asset([TABLE], dagster_lake)],
        resources={"spark": spark_resource(settings)},
        instance=instance,
    )
    [written] = result.asset_materializations_for_node("costs__chargeback")
    rows = DeltaTable(dagster_lake.table_uri("costs/chargeback")).to_pyarrow_table()
    assert written.metadata["lakehouse/rows"].value == rows.num_rows > 1
    assert written.metadata["lakehouse/usd"].value > 0
    assert written.metadata["lakehouse/unread"].value == "none"


def test_a_budget_of_a_table_is_refused_with_what_replaced_it() -> None:
    with pytest.raises(Refused, match=r"budget_usd_per_month is gone\. Use "):
        Table(key="bronze/a", source=TABLE.source, write=Append(), budget_usd_per_month=1.0)  # type: ignore[call-arg]
