"""Files of change data whose rows cannot be written, beside those of `lakehouse_tests.land.test_unwritable_rows`."""

from dataclasses import replace

from pyspark.sql import SparkSession

from lakehouse import Debezium, Landing, Merge
from lakehouse.lake.lake import Lake, TableSession
from lakehouse.land.quarantine import retry
from lakehouse.materialize.run import write_table
from lakehouse_tests.change_streams import debezium_event
from lakehouse_tests.land.test_unwritable_rows import PARTS, SOURCE, put
from lakehouse_tests.support.example_lake import rows_of


def test_a_file_of_changes_stands_alone_and_nothing_that_it_deletes_is_remembered(
    lake: Lake, spark: SparkSession
) -> None:
    source = Landing(prefix=SOURCE.prefix, format="json", schema="id BIGINT", changes=Debezium())
    parts = replace(PARTS, source=source, write=Merge(keys=("id",)))
    put(lake, "1.json", debezium_event("c", 1, 1), debezium_event("c", 1, 2))
    write_table(lake, spark, parts)
    table = f"delta.`{lake.settings.table_uri(PARTS.key)}`"
    spark.sql(f"ALTER TABLE {table} ADD CONSTRAINT known CHECK (id < 9)")
    put(lake, "2.json", debezium_event("d", 3, 1), debezium_event("c", 3, 9))
    put(lake, "3.json", debezium_event("u", 2, 1), debezium_event("c", 2, 3))
    outcome = write_table(lake, spark, parts)
    assert [aside.name for aside in outcome.set_aside] == ["2.json"]
    assert lake.store.list("_lakehouse/deleted_keys") == []
    assert rows_of(spark, lake, PARTS.key, "id", "_source_line") == [(1, 1), (2, 2), (3, 2)]
    spark.sql(f"ALTER TABLE {table} DROP CONSTRAINT known")
    retry(TableSession(lake=lake, spark=spark, table=parts), [], dry_run=False)
    write_table(lake, spark, parts)
    assert rows_of(spark, lake, PARTS.key, "id") == [(2,), (3,), (9,)]
