"""Fields that no schema names become columns, once and for good, whatever is killed."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from lakehouse import Append, Landing, Table
from lakehouse.engine.ingest import commit_rows
from lakehouse.engine.ingest.write import write_table
from lakehouse.engine.journal.landed_batches import LandedBatches
from lakehouse.engine.lake import Lake
from lakehouse_tests.engine.example import events, land, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Killed(BaseException):
    """The end of a process."""


def test_an_added_column_keeps_its_type_and_is_there_once_after_kills(
    lake: Lake, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakehouse.engine.journal.landed_batches.FOLD_EVERY", 2)
    assert isinstance(events.source, Landing)
    table = replace(events, write=Append(), source=replace(events.source, new_columns="add", derived={}))
    land(lake, "a.json", [{"id": 1}])
    write_table(lake, spark, table)
    land(lake, "b.json", [{"id": 2, "x": 1}, {"id": 3, "X": [1.5], "_id": 7}, {"id": 4, "x": 2, "_id": 8}])
    for is_committed in (False, True):
        with monkeypatch.context() as patch:
            patch.setattr(commit_rows, "write_frame", _dying(is_committed))
            with pytest.raises(Killed):
                write_table(lake, spark, table)
    land(lake, "c.json", [{"id": 5, "x": 1.5}, {"id": 6, "x": None, "y": True}])
    # The batch of b.json is done by now: its manifest tells the columns that it added.
    outcome = write_table(lake, spark, table)
    assert (outcome.columns_added, outcome.rows_rescued, outcome.rows_quarantined) == (("y",), 0, 1)
    rows = [
        (1, None, None, None),
        (2, 1, None, None),
        (3, None, '{"X": [1.5], "_id": 7}', None),
        (4, 2, '{"_id":8}', None),
        (6, None, None, True),
    ]
    assert rows_of(spark, lake, table.key, "id", "x", "_rescued", "y") == rows
    assert rows_of(spark, lake, f"quarantine/{table.key}", "line", "reason", "undeclared") == [
        (1, "a field does not fit the schema", '{"x": 1.5}')
    ]
    assert _columns(lake, table) == [
        ("x", "BIGINT", "landing/events/b.json", "add"),
        ("_rescued", "STRING", "landing/events/b.json", "add"),
        ("y", "BOOLEAN", "landing/events/c.json", "add"),
    ]
    lake.store.delete([file.name for file in lake.store.list(table.key)])
    write_table(lake, spark, replace(table, source=replace(table.source, new_columns="rescue")))
    assert rows_of(spark, lake, table.key, "id", "x", "_rescued", "y") == rows


def _columns(lake: Lake, table: Table) -> list[tuple[str, ...]]:
    ledger = LandedBatches(lake.store, table.key, prefix="landing/events/").ledger()
    return [(column.name, column.type, column.file, column.policy) for column in ledger.columns]


def _dying(is_committed: bool) -> Any:
    real = commit_rows.write_frame

    def write_frame(*arguments: Any, **options: Any) -> None:
        if is_committed:
            real(*arguments, **options)
        raise Killed

    return write_frame
