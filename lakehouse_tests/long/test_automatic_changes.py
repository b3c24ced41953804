"""Only a table that says so is changed before a write."""

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from lakehouse import Table
from lakehouse.base.errors import Refused
from lakehouse.evolve.run import apply_policy
from lakehouse.lake.lake import Lake, TableSession
from lakehouse.materialize.run import write_table
from lakehouse_tests.evolve.test_run import FIRST, PREFIX, quiet, shops
from lakehouse_tests.support.example_lake import land, rows_in, version_of


def test_only_an_automatic_table_changes_before_a_write(lake: Lake, spark: SparkSession) -> None:
    land(lake, "1.json", [{"id": 1, "city": "Rome", "n": 5}], prefix=PREFIX)
    write_table(lake, spark, FIRST)

    def policy_of(table: Table) -> tuple[str, ...]:
        return apply_policy(TableSession(lake=lake, spark=spark, table=table), [table], quiet)

    wider = shops("id BIGINT, town STRING, n BIGINT", renamed={"city": "town"})
    assert policy_of(wider) == ()
    narrower = shops("id INT, city STRING, n BIGINT", evolution="automatic")
    assert policy_of(narrower) == ()
    land(lake, "2.json", [{"id": 2, "town": "Oslo", "n": 2**40}], prefix=PREFIX)
    for refused in (wider, narrower):
        with pytest.raises(Refused, match="its declaration has changed"):
            write_table(lake, spark, refused)
    assert version_of(lake, FIRST.key) == 0
    assert policy_of(replace(wider, evolution="automatic")) != ()
    write_table(lake, spark, wider)
    assert rows_in(lake, FIRST.key, "id", "town", "n") == [(1, "Rome", 5), (2, "Oslo", 2**40)]
