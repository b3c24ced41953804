"""The flights' tables on real Spark, against plain pandas, where the data are at their oddest."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from lakehouse.lake.declared_tables import declared_tables
from lakehouse.lake.lake import Lake
from lakehouse.materialize.run import write_table
from lakehouse.replay.play import play
from lakehouse_tests import oracle
from lakehouse_tests.replay.test_play import begin_at

pytestmark = pytest.mark.spark

# A local hour comes twice this night. Flights announced or gone before the start are known from their later events alone.
START = datetime(2013, 11, 2)
STEPS = (timedelta(hours=16), timedelta(hours=42))


def test_late_half_known_flights_add_up(lake: Lake, spark: SparkSession, tmp_path: Path) -> None:
    tables = declared_tables(lake.settings)
    begin_at(lake.store, START)
    for step in STEPS:
        play(lake.store, tmp_path / "home", until=START + step)
        outcomes = [write_table(lake, spark, table) for table in tables.values()]
        assert sum(outcome.rows_quarantined for outcome in outcomes) == 0
        for name, expected in oracle.gold(START, START + step).items():
            found = DeltaTable(lake.settings.table_uri(f"gold/{name}")).to_pandas()
            assert oracle.differences(expected, found) == []
