"""Derived tables whose input was replaced, or has lost its history."""

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from lakehouse.base.errors import Broken
from lakehouse.base.reasons import Reason
from lakehouse.lake.lake import Lake
from lakehouse.materialize.run import write_table
from lakehouse_tests.materialize.test_run import _run
from lakehouse_tests.support.example_lake import add_events, copies, event, events, rows_in, states


def test_lost_changes_are_merged_from_the_whole_input(lake: Lake, spark: SparkSession) -> None:
    """First the files of changes that were recorded are vacuumed, then changes are not recorded any more."""
    uri = lake.settings.table_uri(events.key)
    add_events(lake, event(1, 5, "planned"), event(2, 5, "planned"))
    _run(lake, spark, (states, copies))
    DeltaTable(uri).update(
        updates={"state": "'left'", "at": "at + INTERVAL '1 hour'"}, predicate="id = 1"
    )
    changes = [
        file.name
        for file in lake.store.list(f"{events.key}/_change_data")
        if file.name.endswith(".parquet")
    ]
    assert changes
    lake.store.delete(changes)
    message = r"all of version 1 of bronze/events is read: its changes after version 0 are gone, .* duplicate rows"
    with pytest.raises(Broken, match=message):
        write_table(lake, spark, copies)
    outcome = write_table(lake, spark, states)
    assert (outcome.reason, outcome.rows_written) == (Reason.INPUT_READ_WHOLE, 1)
    assert rows_in(lake, states.key, "id", "state") == [(1, "left"), (2, "planned")]

    DeltaTable(uri).alter.set_table_properties({"delta.enableChangeDataFeed": "false"})
    add_events(lake, event(1, 7, "gone"), event(3, 7, "planned"))
    outcome = write_table(lake, spark, states)
    assert (outcome.reason, outcome.rows_written) == (Reason.INPUT_READ_WHOLE, 2)
    assert rows_in(lake, states.key, "id", "state") == [(1, "gone"), (2, "planned"), (3, "planned")]
    assert rows_in(lake, copies.key, "id", "state") == [(1, "planned"), (2, "planned")]
