"""Versions that are named are read to the row after a vacuum, by Spark and by another reader; then they go."""

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from lakehouse.base.clock import now_ms
from lakehouse.base.operation import VACUUM_MODES
from lakehouse.lake.lake import Lake
from lakehouse.spark import statements
from lakehouse.vacuum.facts import LakeFacts
from lakehouse.vacuum.inventory.run import scan
from lakehouse.vacuum.run import vacuum
from lakehouse_tests.support.example_lake import facts_of
from lakehouse_tests.support.vacuums import append, create, data_files, table_of

KEY = "bronze/t"


def rows_at(spark: SparkSession, uri: str, version: int) -> list[int]:
    frame = spark.read.format("delta").option("versionAsOf", version).load(uri)
    return sorted(row[0] for row in frame.select("id").collect())


@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize("mode", VACUUM_MODES)
def test_a_kept_version_reads_as_it_was_written(
    lake: Lake, spark: SparkSession, mode: str, vectors: bool
) -> None:
    uri = create(spark, lake)
    if vectors:
        spark.sql(statements.set_properties(uri, {"delta.enableDeletionVectors": "true"}))
    for first in (0, 10, 20):
        append(spark, uri, first)
    spark.sql(statements.delete_rows(uri, ["id = 1"]))
    spark.sql(statements.delete_rows(uri, ["id IN (0, 10, 12)"]))
    spark.sql(f"OPTIMIZE delta.`{uri}`")
    spark.sql(statements.delete_rows(uri, ["part = 1"]))
    newest = DeltaTable(uri).version() if not vectors else facts_of(lake, KEY).snapshot.version
    named, another = newest - 4, newest - 3
    before = {version: rows_at(spark, uri, version) for version in (named, another, newest)}
    table = table_of(KEY, keep_versions=(named, another))
    if mode == "INVENTORY":
        scan(lake, now_ms=now_ms())
    files = data_files(lake)
    outcome = vacuum(LakeFacts(lake, [table]), lambda: spark, table, mode=mode)  # type: ignore[arg-type]
    assert outcome.failed == {}
    assert {version: rows_at(spark, uri, version) for version in before} == before
    if not vectors:
        old = DeltaTable(uri, version=named).to_pyarrow_table().column("id").to_pylist()
        assert sorted(old) == before[named]
    free = table_of(KEY)
    again = "LITE" if mode == "LITE" else "FULL"
    vacuum(LakeFacts(lake, [free]), lambda: spark, free, mode=again)
    assert data_files(lake) < files
    with pytest.raises(Exception, match=r"FAILED_READ_FILE|DOES_NOT_EXIST|does not exist"):
        rows_at(spark, uri, named)
    assert rows_at(spark, uri, newest) == before[newest]
