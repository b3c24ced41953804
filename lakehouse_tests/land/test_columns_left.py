"""Columns that come with landed fields, and columns that are no longer declared."""

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from lakehouse import Append
from lakehouse.lake.lake import Lake
from lakehouse.land import ledger as planned_batches
from lakehouse.materialize.run import write_table
from lakehouse.spark import frames
from lakehouse_tests.kills import killed_at
from lakehouse_tests.support.example_lake import columns_of, events, land, rows_in

PREFIX = "landing/shops/"


@pytest.mark.long
def test_an_added_column_holds_every_value_and_is_there_once_after_kills(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
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
        with killed_at(frames, "write_frame", when):
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
    expected = [(3, "a field does not fit the schema", '{"r": 1e400}')]
    assert rows_in(lake, f"quarantine/{table.key}", "line", "reason", "undeclared") == expected
    assert columns_of(lake, table) == ["x", "r", "_rescued", "y"]
    lake.store.delete([file.name for file in lake.store.list(table.key)])
    write_table(lake, spark, replace(table, source=replace(table.landing, new_columns="rescue")))
    assert rows_in(lake, table.key, *names) == rows
