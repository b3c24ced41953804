"""A vacuum whose process is killed loses nothing, and the next one goes on; names of any signs, as Delta itself sees them."""

import pytest
from pyspark.sql import SparkSession

from lakehouse.base.clock import now_ms
from lakehouse.lake.lake import Lake
from lakehouse.lake.state_tables import vacuum_records
from lakehouse.vacuum.facts import LakeFacts
from lakehouse.vacuum.inventory.run import scan
from lakehouse.vacuum.run import vacuum
from lakehouse_tests.land.test_kills import PROGRAM, type_of_client
from lakehouse_tests.support.vacuums import age, append, create, data_files, rows, table_of

ODD = ["a b", "100%", "a%2Fb", "a+b", "ä€😀", "#?&=", "'\",", "new\nline", "{x}[y]*"]


STEPS = [(0, 0), (1, 1), (2, 3)]


def check_killed_and_finished(
    lake: Lake,
    spark: SparkSession,
    uri: str,
    new_client: type_of_client,
    *,
    step: int,
    gone: int,
    left: int,
) -> None:
    """A vacuum that is killed at a step leaves every row, and `gone` files less; the next one leaves `left` files in all."""
    table, before, files = table_of(), rows(spark, uri), data_files(lake)
    client = new_client(PROGRAM, lake.settings, "vacuum_and_die", str(step))
    assert client.wait(timeout=120) == -9
    assert len(files - data_files(lake)) == gone
    assert rows(spark, uri) == before and vacuum_records(lake, "bronze/t") == ()
    outcome = vacuum(LakeFacts(lake, [table]), lambda: spark, table, mode="FULL")
    assert (len(data_files(lake)), rows(spark, uri), outcome.failed) == (left, before, {})
    assert lake.store.list("_lakehouse/locks") == []


@pytest.mark.parametrize(("step", "gone"), STEPS)
def test_a_killed_vacuum_is_finished_by_the_next(
    lake: Lake, spark: SparkSession, new_client: type_of_client, step: int, gone: int
) -> None:
    uri = create(spark, lake)
    append(spark, uri, 0)
    append(spark, uri, 10)
    spark.sql(f"DELETE FROM delta.`{uri}` WHERE part = 0")
    lake.store.put("bronze/t/part=1/orphan", b"123")
    check_killed_and_finished(lake, spark, uri, new_client, step=step, gone=gone, left=2)


def test_names_of_any_signs_go_by_delta_s_word_too(lake: Lake, spark: SparkSession) -> None:
    uri, table = lake.settings.table_uri("bronze/t"), table_of()
    week = "TBLPROPERTIES ('delta.deletedFileRetentionDuration' = 'interval 1 millisecond')"
    spark.sql(
        f"CREATE TABLE delta.`{uri}` (id BIGINT, part STRING) USING delta PARTITIONED BY (part) {week}"
    )
    frame = spark.createDataFrame(
        [(number, name) for name in ODD for number in range(2)], "id BIGINT, part STRING"
    ).coalesce(1)
    frame.write.format("delta").mode("append").save(uri)
    removed = data_files(lake)
    frame.where("id = 1").write.format("delta").mode("overwrite").save(uri)
    live = data_files(lake) - removed
    orphans = {
        f"{name.rpartition('/')[0]}/{odd}"
        for name, odd in zip(sorted(live), ODD, strict=True)
        if "/" not in odd
    }
    for name in orphans:
        lake.store.put(f"bronze/t/{name}", b"123")
    age(lake, orphans)
    scan(lake, now_ms=now_ms())
    outcome = vacuum(LakeFacts(lake, [table]), lambda: spark, table, mode="INVENTORY")
    assert (data_files(lake), outcome.spared, outcome.failed) == (live, {}, {})
    assert sorted(
        row[0] for row in spark.read.format("delta").load(uri).select("part").collect()
    ) == sorted(ODD)
