"""A declaration gains a column, or an overwritten table another shape: the table follows, and no row is lost on the way."""

from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakehouse import Append, Debezium, Landing, Merge, Table
from lakehouse.lake.lake import Lake
from lakehouse.materialize.run import write_table
from lakehouse.spark import frames
from lakehouse.write import commit_rows
from lakehouse_tests.kills import killed_at
from lakehouse_tests.support.example_lake import facts_of, land, rows_in

PREFIX = "landing/shops/"


NARROW = Landing(prefix=PREFIX, format="json", schema="id BIGINT, name STRING", changes=Debezium())
# A nested type with names that need quotes.
WIDE = replace(NARROW, schema="id BIGINT, `more-info` STRUCT<`a-b`: INT>, name STRING")


def land_event(lake: Lake, lsn: int, row: dict[str, Any]) -> None:
    event = {"op": "c", "after": row, "source": {"lsn": lsn, "ts_ms": lsn * 1_000}}
    land(lake, f"{lsn}.json", [event], prefix=PREFIX)


@pytest.mark.long
@pytest.mark.parametrize(
    "write", [Merge(keys=("id",)), Merge(keys=("id",), deletes="soft")], ids=["hard", "soft"]
)
@pytest.mark.parametrize(
    ("follows", "step"),
    [(Merge(keys=("id",), order_by=("_position",)), "merge_rows"), (Append(), "write_rows")],
)
def test_change_data_and_what_follows_it_gain_a_column_and_keep_their_rows(
    lake: Lake, spark: SparkSession, write: Any, follows: Any, step: str
) -> None:
    table = Table(key="bronze/shops", source=NARROW, write=write)
    follower = Table(
        key="silver/shops", inputs=(table,), write=follows, transform=lambda shops: shops
    )
    land_event(lake, 1, {"id": 1, "name": "a"})
    land_event(lake, 2, {"id": 2, "name": "b"})
    write_table(lake, spark, table)
    write_table(lake, spark, follower)
    land_event(lake, 3, {"id": 1, "name": "c", "more-info": {"a-b": 7}})
    with killed_at(frames, "run_merge", "before"):
        write_table(lake, spark, replace(table, source=WIDE))
    assert facts_of(lake, table.key).history.commits[-1].operation == "ADD COLUMNS"
    write_table(lake, spark, replace(table, source=WIDE))
    with killed_at(commit_rows, step, "before"):
        write_table(lake, spark, follower)
    write_table(lake, spark, follower)
    for key in (table.key, follower.key):
        names = [column.name for column in facts_of(lake, key).snapshot.columns]
        assert names[:3] == ["id", "more-info", "name"]
    newest = [(1, 7, "c"), (2, None, "b")]
    assert rows_in(lake, table.key, "id", "more-info.a-b", "name") == newest
    assert {*newest} <= {*rows_in(lake, follower.key, "id", "more-info.a-b", "name")}
