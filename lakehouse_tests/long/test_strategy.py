"""Declared properties and clustering change what really happens on a table."""

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from lakehouse.base.errors import Refused
from lakehouse.compact.run import plan
from lakehouse.declare.compaction import (
    CLUSTERING_MARK,
    BinPacking,
    BySensor,
    Compaction,
    LiquidClustering,
    Strategy,
)
from lakehouse.declare.table import Table
from lakehouse.declare.write_modes import Append
from lakehouse.delta.log import TableFacts
from lakehouse.delta.protocol import OPTIMIZE_WRITE
from lakehouse.lake.lake import Lake
from lakehouse.materialize.run import write_table
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.support.example_lake import copies, event, events, land, version_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OURS = {CLUSTERING_MARK}


def scattered(events: Any) -> Any:
    """Every day's rows in each of four tasks."""
    return events.select("id", "day").repartition(4)


def under(strategy: Strategy, table: Table = events, **more: Any) -> Table:
    return replace(table, compaction=Compaction(strategy=strategy, min_small_files=2, **more))


def facts_of(lake: Lake, key: str) -> TableFacts:
    facts = lake.facts(key)
    assert facts is not None
    return facts


def ours(lake: Lake, key: str) -> dict[str, str]:
    return {
        name: value
        for name, value in facts_of(lake, key).snapshot.properties.items()
        if name in OURS
    }


def append_events(lake: Lake, spark: "SparkSession") -> None:
    """40 rows over two days."""
    row = (
        "id",
        "TIMESTAMP'2013-01-01 05:00:00' AS at",
        "'new' AS state",
        "date_add(DATE'2013-01-01', INT(id % 2)) AS day",
    )
    frame = spark.range(0, 40, 1, 1).selectExpr(*row)
    frame.write.format("delta").mode("append").partitionBy("day").option(
        "delta.enableChangeDataFeed", "true"
    ).save(lake.settings.table_uri(events.key))


def files_of_next_batch(lake: Lake, spark: "SparkSession", table: Table) -> int:
    """How many files a batch of 40 rows over two days makes in `table`, which follows the events."""
    append_events(lake, spark)
    before = (
        facts_of(lake, table.key).snapshot.file_count
        if version_of(lake, table.key) is not None
        else 0
    )
    write_table(lake, spark, table)
    return facts_of(lake, table.key).snapshot.file_count - before


def test_delta_writes_and_compacts_as_the_declared_properties_say(
    lake: Lake, spark: "SparkSession"
) -> None:
    table = replace(copies, transform=scattered, write=Append(partition_by=("day",)))
    assert files_of_next_batch(lake, spark, under(BySensor(), table)) == 8
    shuffled = replace(table, properties={OPTIMIZE_WRITE: "true"})
    assert files_of_next_batch(lake, spark, under(BySensor(), shuffled)) == 2
    planned = plan(lake, under(BySensor(), shuffled))
    assert planned is not None
    assert f"Delta itself shuffles each write ({OPTIMIZE_WRITE} is set)" in planned.sentence


def test_liquid_clustering_comes_and_goes_with_the_policy(
    lake: Lake, spark: "SparkSession"
) -> None:
    land(lake, "a.json", [event(1, 5, "new")])
    write_table(lake, spark, events)
    clustered = under(BySensor(), copies, data_layout=LiquidClustering(columns=("id", "STATE")))
    write_table(lake, spark, clustered)
    assert facts_of(lake, copies.key).snapshot.clustering_columns == ("id", "state")
    version = version_of(lake, copies.key)
    write_table(lake, spark, clustered)
    assert version_of(lake, copies.key) == version
    write_table(
        lake, spark, under(BySensor(), copies, data_layout=LiquidClustering(columns=("state",)))
    )
    assert facts_of(lake, copies.key).snapshot.clustering_columns == ("state",)
    write_table(lake, spark, under(BySensor(), copies, data_layout=BinPacking()))
    assert (
        facts_of(lake, copies.key).snapshot.clustering_columns == ()
        and ours(lake, copies.key) == {}
    )
    with pytest.raises(
        Refused,
        match=r"silver/copies: Delta refuses the declared properties or clustering: .*nothing",
    ):
        write_table(
            lake,
            spark,
            under(BySensor(), copies, data_layout=LiquidClustering(columns=("nothing",))),
        )


@pytest.mark.parametrize(("mapped", "named"), [(False, ("id", "more.place")), (True, ("the id",))])
def test_the_columns_that_a_table_is_clustered_by_are_read_from_its_log(
    mapped: bool, named: tuple[str, ...]
) -> None:
    story = LogBuilder().create(features=["clustering", "domainMetadata"])
    if mapped:
        old = story._single["metaData", ""]
        field = {
            "name": "the id",
            "type": "long",
            "nullable": True,
            "metadata": {"delta.columnMapping.physicalName": "id"},
        }
        schema = json.dumps({"type": "struct", "fields": [field]})
        configuration = {"delta.columnMapping.mode": "name"}
        story.commit(
            "SET TBLPROPERTIES",
            {"metaData": {**old, "schemaString": schema, "configuration": configuration}},
        )
    assert story.snapshot().clustering_columns == ()
    columns = [["id"]] if mapped else [["id"], ["more", "place"]]
    story.commit("CLUSTER BY", _domain(columns))
    assert story.snapshot().clustering_columns == named
    assert story.checkpoint().snapshot().clustering_columns == named
    assert story.commit("CLUSTER BY", _domain([])).snapshot().clustering_columns == ()


def _domain(columns: list[list[str]]) -> dict[str, Any]:
    configuration = json.dumps({"clusteringColumns": columns})
    return {
        "domainMetadata": {
            "domain": "delta.clustering",
            "configuration": configuration,
            "removed": False,
        }
    }
