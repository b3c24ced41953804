"""Columns that come with landed fields, and columns that are no longer declared."""

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lakehouse import Append, Landing, Merge, Table
from lakehouse.lake.lake import Lake
from lakehouse.land import ledger as planned_batches
from lakehouse.materialize.run import write_table
from lakehouse.spark import delta_writes
from lakehouse_tests.kills import killed_at
from lakehouse_tests.support.example_lake import columns_of, events, land, rows_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PREFIX = "landing/shops/"
SHOPS = Table(
    key="bronze/shops",
    source=Landing(
        prefix=PREFIX,
        format="json",
        schema="id BIGINT, note STRING, fee BIGINT, at INT",
        new_columns="add",
    ),
    write=Append(),
)
BARE = replace(SHOPS, source=replace(SHOPS.landing, schema="id BIGINT, at INT"))


def newest(shops: Table, *columns: str) -> Table:
    return Table(
        key="silver/shops",
        inputs=(shops,),
        write=Merge(keys=("id",), order_by=("at",)),
        transform=lambda shops: shops.select(*columns),
    )


@pytest.mark.long
def test_appended_and_merged_rows_have_null_and_the_field_comes_back_by_its_policy(
    lake: Lake, spark: "SparkSession"
) -> None:
    """It is the column again if this is a text. Otherwise it is rescued, and nothing is cast."""
    rows = [{"id": 1, "note": "a", "fee": 1, "at": 1}, {"id": 2, "note": "b", "fee": 2, "at": 1}]
    land(lake, "1.json", rows, prefix=PREFIX)
    write_table(lake, spark, SHOPS)
    write_table(lake, spark, newest(SHOPS, "id", "note", "at"))

    land(lake, "2.json", [{"id": 1, "at": 2}, {"id": 4, "at": 1, "note": None}], prefix=PREFIX)
    land(lake, "3.json", [{"id": 3, "at": 1, "note": 5, "fee": 7}], prefix=PREFIX)
    outcome = write_table(lake, spark, BARE)
    assert (outcome.rows_quarantined, outcome.rows_rescued) == (0, 1)
    assert columns_of(lake, BARE) == ["note", "_rescued"]
    write_table(lake, spark, newest(BARE, "id", "at"))
    assert rows_in(lake, "silver/shops", "id", "note", "at") == [
        (1, None, 2),
        (2, "b", 1),
        (3, None, 1),
        (4, None, 1),
    ]
    # Declared again, it goes on.
    land(lake, "4.json", [{"id": 5, "at": 1, "note": "c"}], prefix=PREFIX)
    write_table(lake, spark, SHOPS)
    assert rows_in(lake, SHOPS.key, "id", "note", "fee", "at", "_rescued") == [
        (1, "a", 1, 1, None),
        (1, None, None, 2, None),
        (2, "b", 2, 1, None),
        (3, "5", None, 1, '{"fee":7}'),
        (4, None, None, 1, None),
        (5, "c", None, 1, None),
    ]


@pytest.mark.long
def test_an_added_column_holds_every_value_and_is_there_once_after_kills(
    lake: Lake, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """A number that Spark would change goes to quarantine."""
    monkeypatch.setattr(planned_batches, "FOLD_EVERY", 2)
    table = replace(
        events, write=Append(), source=replace(events.landing, new_columns="add", derived={})
    )
    land(lake, "a.json", [{"id": 1}])
    write_table(lake, spark, table)
    land(
        lake,
        "b.json",
        [{"id": 2, "x": 1, "r": 0.5}, {"id": 3, "X": [1.5], "_id": 7}, {"id": 4, "x": 2, "_id": 8}],
    )
    for when in ("before", "after"):
        with killed_at(delta_writes, "write_frame", when):
            write_table(lake, spark, table)
    infinite = ['{"id": 7, "r": 1e400}', '{"id": 8, "r": "Infinity"}']
    land(lake, "c.json", [{"id": 5, "x": [1.5]}, {"id": 6, "x": None, "y": True}, *infinite])
    # The batch of b.json is done by now: its manifest tells the columns that it added.
    outcome = write_table(lake, spark, table)
    assert (outcome.columns_added, outcome.rows_rescued, outcome.rows_quarantined) == (("y",), 0, 1)
    rows = [
        (1, None, None, None, None),
        (2, "1", "0.5", None, None),
        (3, None, None, '{"X": [1.5], "_id": 7}', None),
        (4, "2", None, '{"_id":8}', None),
        (5, "[1.5]", None, None, None),
        (6, None, None, None, "true"),
        (8, None, "Infinity", None, None),
    ]
    names = ("id", "x", "r", "_rescued", "y")
    assert rows_in(lake, table.key, *names) == rows
    assert rows_in(lake, f"quarantine/{table.key}", "line", "reason", "undeclared") == [
        (3, "a field does not fit the schema", '{"r": 1e400}')
    ]
    assert columns_of(lake, table) == ["x", "r", "_rescued", "y"]
    lake.store.delete([file.name for file in lake.store.list(table.key)])
    write_table(lake, spark, replace(table, source=replace(table.landing, new_columns="rescue")))
    assert rows_in(lake, table.key, *names) == rows
