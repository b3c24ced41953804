"""Which files a MERGE reads and writes, next to the rows that `make test` compares."""

from typing import TYPE_CHECKING

import pytest
from pyspark.errors.exceptions.connect import SparkException

from lakehouse.declare.write_modes import Merge
from lakehouse.lake.lake import Lake
from lakehouse.spark.delta_writes import Transaction
from lakehouse.write.commit_rows import KeyedMerge, merge_rows, with_key_range
from lakehouse_tests.support.example_lake import states

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_files_without_a_key_of_the_rows_are_not_read(lake: Lake, spark: "SparkSession") -> None:
    write = Merge(keys=("day", "id"), order_by=("at",))
    days = spark.range(0, 1_000, 1, 10).selectExpr(
        "id", "date_add(DATE'2013-01-01', int(id / 100)) AS day", "1 AS at"
    )
    days.write.format("delta").save(lake.settings.table_uri("silver/days"))
    facts = lake.facts("silver/days")
    assert facts is not None and facts.snapshot.file_count == 10
    late = spark.sql("SELECT 942L AS id, DATE'2013-01-10' AS day, 2 AS at")
    _, within = with_key_range(late, write.keys)
    assert within == (
        "`day` BETWEEN DATE'2013-01-10' AND DATE'2013-01-10'",
        "`id` BETWEEN 942 AND 942",
    )
    lake.store.delete(
        f"silver/days/{file.path}" for file in facts.snapshot.files if "part-00009" not in file.path
    )
    merges = [
        KeyedMerge(
            snapshot=facts.snapshot,
            write=write,
            transaction=Transaction(app_id="t", version=version),
        )
        for version in (1, 2)
    ]
    merge_rows(spark, late, merges[0], are_few=True)
    assert lake.has_version("silver/days", 1)
    with pytest.raises(SparkException):
        merge_rows(spark, late, merges[1])


def test_a_merge_writes_few_files_unless_the_table_says_otherwise(
    lake: Lake, spark: "SparkSession"
) -> None:
    """Into a table with deletion vectors, Delta would write a file for each task of the source."""
    uri, found = lake.settings.table_uri(states.key), list[int]()
    spark.sql(
        f"CREATE TABLE delta.`{uri}` (id BIGINT, at BIGINT) USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    for number in (1, 2):
        facts = lake.facts(states.key)
        assert facts is not None
        rows = spark.range(100 * number, 100 * number + 80, 1, 6).selectExpr("id", "id AS at")
        transaction = Transaction(app_id="lakehouse/test", version=number)
        write = Merge(keys=("id",), order_by=("at",))
        merge = KeyedMerge(snapshot=facts.snapshot, write=write, transaction=transaction)
        merge_rows(spark, rows, merge)
        after = lake.facts(states.key)
        assert after is not None
        found.append(len(after.history.commits[-1].added_paths))
        if number == 1:
            spark.sql(
                f"ALTER TABLE delta.`{uri}` SET TBLPROPERTIES ('delta.autoOptimize.optimizeWrite' = 'false')"
            )
    assert found[0] == 1 < found[1]
