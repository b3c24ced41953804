"""Inventory and vacuum by Spark in a bucket, against two servers of S3's protocol that have no code in common: moto's and MiniStack.

`make bench` installs MiniStack beside the other packages.
"""

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from lakehouse.base.clock import now_ms
from lakehouse.base.settings import Settings
from lakehouse.lake.lake import Lake, open_lake
from lakehouse.spark.session import connect
from lakehouse.vacuum.facts import LakeFacts
from lakehouse.vacuum.inventory.run import scan
from lakehouse.vacuum.run import rehearse, vacuum
from lakehouse_tests.land.test_kills import type_of_client
from lakehouse_tests.long.test_vacuum_kills import STEPS, check_killed_and_finished
from lakehouse_tests.support.example_lake import facts_of
from lakehouse_tests.support.vacuums import append, create, data_files, deleted, rows, table_of

pytestmark = pytest.mark.parametrize("on_s3", ["moto", "ministack"], indirect=True)


@pytest.fixture
def in_bucket(on_s3: Settings, request: pytest.FixtureRequest) -> Lake:
    """A fresh lake in the bucket."""
    return open_lake(replace(on_s3, root=f"s3://lake/{abs(hash(request.node.nodeid)):x}"))


def made(spark: SparkSession, lake: Lake) -> tuple[str, set[str]]:
    """A table that has removed three of its five files; its URI and the files that it needs."""
    uri = create(spark, lake)
    append(spark, uri, 0)
    append(spark, uri, 10)
    spark.sql(f"DELETE FROM delta.`{uri}` WHERE part = 0")
    spark.sql(f"DELETE FROM delta.`{uri}` WHERE id = 1")
    return uri, {file.path for file in facts_of(lake, "bronze/t").snapshot.files}


@pytest.mark.parametrize("mode", ["LITE", "INVENTORY", "FULL"])
def test_only_what_the_dry_run_names_goes_from_the_bucket(in_bucket: Lake, mode: str) -> None:
    lake, spark, table = in_bucket, connect(in_bucket.settings), table_of()
    uri, needed = made(spark, lake)
    before, files = rows(spark, uri), data_files(lake)
    scan(lake, now_ms=now_ms())
    named = rehearse(LakeFacts(lake, [table]), lambda: spark, table, mode=mode)
    assert named is not None and {each.name for each in named.candidates} == files - needed
    assert data_files(lake) == files
    outcome = vacuum(LakeFacts(lake, [table]), lambda: spark, table, mode=mode)
    assert (data_files(lake), deleted(outcome)) == (needed, len(files - needed))
    assert outcome.failed == {}
    assert rows(spark, uri) == before
    assert not vacuum(LakeFacts(lake, [table]), lambda: spark, table, mode="FULL").plan.candidates


@pytest.mark.parametrize(("step", "gone"), STEPS)
def test_a_killed_vacuum_is_finished_by_the_next(
    in_bucket: Lake, new_client: type_of_client, step: int, gone: int
) -> None:
    lake, spark = in_bucket, connect(in_bucket.settings)
    uri, needed = made(spark, lake)
    check_killed_and_finished(lake, spark, uri, new_client, step=step, gone=gone, left=len(needed))
    assert data_files(lake) == needed
