"""Which files a MERGE reads and writes, next to the rows that `make test` compares."""

from pyspark.sql import SparkSession

from lakehouse.declare.table import Merge
from lakehouse.lake.lake import Lake
from lakehouse.spark.frames import Transaction
from lakehouse.write.commit_rows import merge_rows
from lakehouse_tests.support.example_lake import facts_of, states


def test_merges_write_few_files_unless_declared_otherwise(lake: Lake, spark: SparkSession) -> None:
    """Into a table with deletion vectors, Delta would write a file for each task of the source."""
    uri, found = lake.settings.table_uri(states.key), list[int]()
    spark.sql(
        f"CREATE TABLE delta.`{uri}` (id BIGINT, at BIGINT) USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    for number in (1, 2):
        snapshot = facts_of(lake, states.key).snapshot
        rows = spark.range(100 * number, 100 * number + 80, 1, 6).selectExpr("id", "id AS at")
        transaction = Transaction(app_id="lakehouse/test", version=number)
        write = Merge(keys=("id",), order_by=("at",))
        merge_rows(rows, snapshot, write, transaction)
        found.append(len(facts_of(lake, states.key).history.commits[-1].added_paths))
        if number == 1:
            spark.sql(
                f"ALTER TABLE delta.`{uri}` SET TBLPROPERTIES ('delta.autoOptimize.optimizeWrite' = 'false')"
            )
    assert found[0] == 1 < found[1]
