"""Files whose rows cannot be written: older quarantines, constraints, long texts, overwrites."""

from dataclasses import replace

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from lakehouse import Append, Overwrite
from lakehouse.lake.lake import Lake, TableSession
from lakehouse.land.ledger import PlannedBatches
from lakehouse.land.quarantine import retry
from lakehouse.materialize.run import write_table
from lakehouse_tests.kills import killed_at
from lakehouse_tests.land.test_unwritable_rows import HALVED, PARTS, SOURCE, part, put, quarantined
from lakehouse_tests.support.example_lake import rows_in


def test_a_constraint_of_the_table_sets_each_file_aside_that_violates_it(
    lake: Lake, spark: SparkSession
) -> None:
    put(lake, "1.json", part(1, 2))
    write_table(lake, spark, PARTS)
    DeltaTable(lake.settings.table_uri(PARTS.key)).alter.add_constraint({"small": "size < 9"})
    for number, size in ((2, 9), (3, 10), (4, 3)):
        put(lake, f"{number}.json", part(number, size))
    outcome = write_table(lake, spark, PARTS)
    assert outcome.rows_written == 1
    assert [aside.name for aside in outcome.set_aside] == ["2.json", "3.json"]
    violated = "CHECK constraint small (size < 9) violated by row with values: - size : 9"
    assert violated in outcome.set_aside[0].why
    DeltaTable(lake.settings.table_uri(PARTS.key)).alter.drop_constraint("small")
    retry(TableSession(lake=lake, spark=spark, table=PARTS), [], dry_run=False)
    assert write_table(lake, spark, PARTS).rows_written == 2
    assert (rows_in(lake, PARTS.key, "id"), quarantined(lake)) == ([(1,), (2,), (3,), (4,)], [])


def test_a_text_that_is_too_long_for_a_partition_stops_no_table(
    lake: Lake, spark: SparkSession
) -> None:
    by_name = replace(
        PARTS,
        source=replace(SOURCE, schema="id BIGINT, name STRING"),
        write=Append(partition_by=("name",)),
    )
    put(lake, "1.json", {"id": 1, "name": "x" * 200})
    put(lake, "2.json", {"id": 2, "name": "x" * 300})
    [aside] = write_table(lake, spark, by_name).set_aside
    assert (
        aside.name,
        "perhaps because its value is too long: Mkdirs failed to create file:/" in aside.why,
    ) == ("2.json", True)
    assert (rows_in(lake, PARTS.key, "id"), quarantined(lake)) == ([(1,)], [("2.json", None)])


def test_an_overwrite_keeps_its_rows_where_those_of_the_newest_file_cannot_be_written(
    lake: Lake, spark: SparkSession
) -> None:
    whole = replace(PARTS, write=Overwrite(), source=replace(SOURCE, derived=HALVED))
    put(lake, "1.json", part(1, 2))
    put(lake, "2.json", part(2, 2), part(3, 3), "nope")
    with killed_at(PlannedBatches, "replace", "after"):
        write_table(lake, spark, whole)
    outcome = write_table(lake, spark, whole)
    assert rows_in(lake, PARTS.key, "id") == [(1,)]
    assert [aside.name for aside in outcome.set_aside] == ["2.json"]
    assert quarantined(lake) == [("2.json", None)]
