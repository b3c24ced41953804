"""Liquid clustering comes and goes with the declaration, and Delta's overwrites do not end it."""

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from lakehouse import Overwrite, Table
from lakehouse.base.errors import Refused
from lakehouse.declare.policies import CLUSTERING_MARK, BinPacking, Compaction, LiquidClustering
from lakehouse.lake.lake import Lake
from lakehouse.materialize.run import write_table
from lakehouse_tests.support.example_lake import add_events, copies, event, facts_of, version_of


def test_liquid_clustering_comes_and_goes_with_the_policy(lake: Lake, spark: SparkSession) -> None:
    def clustered_by(*columns: str, table: Table = copies) -> tuple[str, ...]:
        """What the table is clustered by after a write that declares these columns."""
        layout = LiquidClustering(columns=columns) if columns else BinPacking()
        write_table(lake, spark, replace(table, compaction=Compaction(data_layout=layout)))
        return facts_of(lake, copies.key).snapshot.clustering_columns

    add_events(lake, event(1, 5, "new"))
    assert clustered_by("id", "STATE") == ("id", "state")
    version = version_of(lake, copies.key)
    clustered_by("id", "STATE")
    assert version_of(lake, copies.key) == version
    assert clustered_by("state") == ("state",)
    whole = replace(copies, write=Overwrite())
    add_events(lake, event(2, 5, "new"))
    assert clustered_by("state", table=whole) == ("state",)
    assert clustered_by(table=whole) == ()
    assert CLUSTERING_MARK not in facts_of(lake, copies.key).snapshot.properties
    with pytest.raises(Refused, match=r"Delta refuses the declared .* clustering: .*nothing"):
        clustered_by("nothing", table=whole)
