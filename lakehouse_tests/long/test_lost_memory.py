"""The memory of deleted keys that is lost stops a load."""

import pytest
from pyspark.sql import SparkSession

from lakehouse import Debezium, Landing, Merge, Table
from lakehouse.base.errors import Broken
from lakehouse.lake.lake import Lake
from lakehouse.materialize.run import write_table
from lakehouse_tests.change_streams import debezium_event
from lakehouse_tests.support.example_lake import land, rows_in


def test_a_memory_of_deletions_that_is_lost_stops_the_load_and_one_that_never_was_does_not(
    lake: Lake, spark: SparkSession
) -> None:
    source = Landing(
        prefix="landing/people/", format="json", schema="id BIGINT", changes=Debezium()
    )
    people = Table(key="bronze/people", source=source, write=Merge(keys=("id",)))
    land(
        lake,
        "1.json",
        [debezium_event("c", 1, 1), debezium_event("c", 1, 2), debezium_event("d", 3, 1)],
        prefix=source.prefix,
    )
    write_table(lake, spark, people)
    # A table that is made anew has all deletions to come.
    lake.store.delete(
        [
            file.name
            for folder in (people.key, "_lakehouse/deleted_keys")
            for file in lake.store.list(folder)
        ]
    )
    write_table(lake, spark, people)
    memory = {
        file.name: lake.store.read(file.name) for file in lake.store.list("_lakehouse/deleted_keys")
    }
    lake.store.delete([*memory])
    land(
        lake, "2.json", [debezium_event("u", 2, 1), debezium_event("u", 2, 2)], prefix=source.prefix
    )
    for _ in range(2):
        message = r"deleted are gone from _lakehouse/deleted_keys/bronze/people, .*that folder from a copy"
        with pytest.raises(Broken, match=message):
            write_table(lake, spark, people)
    for name, data in memory.items():
        lake.store.put(name, data)
    write_table(lake, spark, people)
    assert rows_in(lake, people.key, "id", "_position.lsn") == [(2, 2)]
