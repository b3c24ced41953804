"""The costs as Dagster shows them: two tables after an inventory, and a check that names a budget."""

from decimal import Decimal
from typing import Any

import dagster as dg
import pytest
from deltalake import DeltaTable

from lakehouse import Append, Landing, Table
from lakehouse.defs.costs import costs_assets, published_left_usd
from lakehouse.defs.keys import costs_key
from lakehouse.defs.resources import spark_resource
from lakehouse.engine.clock import now_ms
from lakehouse.engine.inventory.scan import scan
from lakehouse.engine.lake import Lake
from lakehouse_tests.log_builder import LogBuilder

TABLE = Table(
    key="bronze/a",
    source=Landing(prefix="landing/a/", format="json", schema="id BIGINT"),
    write=Append(),
    budget_usd_per_month=0.0000001,
)


@pytest.mark.spark
def test_the_chargeback_is_written_and_a_budget_that_the_month_exceeds_is_named(
    lake: Lake, settings: Any, instance: dg.DagsterInstance
) -> None:
    LogBuilder(lake.store, TABLE.key).create().append([("a", 9_000_000)]).store_data()
    scan(lake.store, now_ms=now_ms())
    result = dg.materialize(
        costs_assets([TABLE], lake),
        resources={"spark": spark_resource(settings)},
        instance=instance,
    )
    assert result.success
    chargeback = costs_key("chargeback")
    [written] = result.asset_materializations_for_node("costs__chargeback")
    rows = DeltaTable(lake.table_uri("costs/chargeback")).to_pyarrow_table()
    assert written.metadata["lakehouse/rows"].value == rows.num_rows > 1
    [check] = result.get_asset_check_evaluations()
    assert (check.asset_key, check.check_name, check.passed) == (chargeback, "budget", False)
    assert "this month, bronze/a will cost" in str(check.description)
    budgets = {"bronze/a": Decimal("0.0000001")}
    assert published_left_usd(instance, budgets, now_ms=now_ms())["bronze/a"] < 0
