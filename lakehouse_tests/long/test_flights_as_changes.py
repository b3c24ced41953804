"""The flights from AWS DMS and from Debezium on real Spark: gold is row for row what plain pandas makes of them."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from lakehouse.lake.declared_tables import module_tables, table_modules
from lakehouse.lake.lake import Lake
from lakehouse.materialize.run import write_table
from lakehouse.replay.play import play
from lakehouse_tests import oracle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

START = datetime(2013, 1, 1)
STEPS = (timedelta(days=2), timedelta(days=5), timedelta(days=28))


@pytest.mark.parametrize("shape", ["dms", "debezium"])
def test_four_weeks_of_flights_as_change_data_are_the_plain_ones(
    lake: Lake, spark: "SparkSession", tmp_path: Path, shape: str
) -> None:
    tables = module_tables(table_modules(f"lakehouse.replay.cdc.{shape}"))
    for step in STEPS:
        play(lake.store, tmp_path / "home", start=START, until=START + step, changes=shape)
        outcomes = [write_table(lake, spark, table) for table in tables.values()]
        assert sum(outcome.rows_quarantined for outcome in outcomes) == 0
    for name, expected in oracle.gold(START, START + STEPS[-1]).items():
        found = DeltaTable(lake.settings.table_uri(f"gold/{name}")).to_pandas()
        assert oracle.differences(expected, found) == []
