"""A killed batch of change data; `lakehouse_tests/long/test_change_streams.py` draws streams."""

from typing import TYPE_CHECKING

from lakehouse import Debezium, Landing, Merge, Table
from lakehouse.base.reasons import Reason
from lakehouse.cdc import run as apply
from lakehouse.lake.lake import Lake
from lakehouse.materialize.run import write_table
from lakehouse_tests.change_streams import debezium_event
from lakehouse_tests.kills import killed_at
from lakehouse_tests.support.example_lake import land, rows_in, version_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_batch_that_dies_at_any_step_ends_the_same(lake: Lake, spark: "SparkSession") -> None:
    source = Landing(
        prefix="landing/people/",
        format="json",
        schema="id BIGINT",
        changes=Debezium(),
        new_columns="add",
    )
    people = Table(key="bronze/people", source=source, write=Merge(keys=("id",)))
    created = [debezium_event("c", 1, 1), debezium_event("c", 1, 2), debezium_event("c", 1, 9)]
    land(lake, "1.json", created, prefix=source.prefix)
    write_table(lake, spark, people)
    # A row changes its key, so that the old one is beyond the keys of the batch, and the source has a column more.
    moved = {**debezium_event("u", 2, 9), "after": {"id": 3, "team": "x", "_own": 1}}
    # Kafka Connect may write an object again with the records that follow.
    land(lake, "1.json", [*created, debezium_event("d", 2, 1), moved], prefix=source.prefix)
    for when in ("before", "after"):  # before it, deletions are remembered
        with killed_at(apply, "_commit", when):
            write_table(lake, spark, people)
    again = write_table(lake, spark, people)
    assert (again.reason, version_of(lake, people.key)) == (Reason.NOTHING_LANDED, 3)
    assert rows_in(lake, people.key, "id", "team", "_rescued") == [
        (2, None, None),
        (3, "x", '{"_own":1}'),
    ]
