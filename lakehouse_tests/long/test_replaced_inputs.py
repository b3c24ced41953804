"""Derived tables whose input was replaced, or has lost its history."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from lakehouse.base.errors import Broken
from lakehouse.base.reasons import Reason
from lakehouse.lake.lake import Lake
from lakehouse.materialize.run import write_table
from lakehouse_tests.materialize.test_run import _run, _versions
from lakehouse_tests.support.example_lake import (
    add_events,
    copies,
    counts,
    event,
    events,
    rows_in,
    states,
    version_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_changes_that_are_gone_are_merged_from_the_whole_input_and_never_appended_again(
    lake: Lake, spark: "SparkSession"
) -> None:
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
    with pytest.raises(
        Broken,
        match=r"all of version 1 of bronze/events is read: its changes after version 0 are gone, .* duplicate rows",
    ):
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


def test_an_input_that_was_made_anew_at_a_higher_version_is_read_whole(
    lake: Lake, spark: "SparkSession"
) -> None:
    plain = replace(
        counts,
        key="gold/plain",
        inputs=(events,),
        transform=lambda events: events.select("id", "state"),
    )
    add_events(lake, event(0, 5, "planned"))
    _run(lake, spark, (states, copies, plain))
    shutil.rmtree(lake.settings.table_uri(events.key))
    for number in (1, 2, 3):
        add_events(lake, event(number, 5, "anew"))
    outcome = write_table(lake, spark, states)
    assert (outcome.reason, outcome.rows_written) == (Reason.INPUT_READ_WHOLE, 3)
    assert rows_in(lake, states.key, "id", "state") == [
        (0, "planned"),
        (1, "anew"),
        (2, "anew"),
        (3, "anew"),
    ]
    with pytest.raises(
        Broken,
        match=r"all of version 2 of bronze/events is read: it was created again .* use `lakehouse rebuild silver/copies`",
    ):
        write_table(lake, spark, copies)
    assert write_table(lake, spark, plain).reason is Reason.INPUT_READ_WHOLE
    assert rows_in(lake, plain.key, "id") == [(1,), (2,), (3,)]
    before = _versions(lake, (states, plain))
    _run(lake, spark, (states, plain))
    assert _versions(lake, (states, plain)) == before
    add_events(lake, event(1, 6, "left"))
    assert (write_table(lake, spark, states).reason, version_of(lake, states.key)) == (
        Reason.INPUTS_CHANGED,
        2,
    )


def test_an_older_copy_of_an_input_is_seen_also_after_it_was_written_to(
    lake: Lake, spark: "SparkSession"
) -> None:
    """By then its version is the one that was consumed, or a later one."""
    uri = lake.settings.table_uri(events.key)
    plain = replace(
        counts, key="gold/plain", inputs=(events,), transform=lambda events: events.select("id")
    )
    add_events(lake, event(1, 5, "planned"))
    shutil.copytree(uri, f"{uri}_copy")
    add_events(lake, event(2, 5, "planned"))
    _run(lake, spark, (states, copies, plain))
    shutil.rmtree(uri)
    Path(f"{uri}_copy").rename(uri)
    for number, reason in ((3, Reason.INPUT_READ_WHOLE), (4, Reason.INPUTS_CHANGED)):
        add_events(lake, event(number, 5, "planned"))
        assert write_table(lake, spark, plain).reason is reason
        assert rows_in(lake, plain.key, "id") == rows_in(lake, events.key, "id")
        for follower in (states, copies):
            message = r"it has consumed version 1 of bronze/events, .* an older copy was put in its place. Either put the newest log back"
            with pytest.raises(Broken, match=message):
                write_table(lake, spark, follower)
    assert rows_in(lake, copies.key, "id") == [(1,), (2,)]


def test_somebodys_restore_of_an_input_gives_no_row_twice(
    lake: Lake, spark: "SparkSession"
) -> None:
    """Rows of a MERGE stay the newest of each key that was ever read; rows that were taken from the input are not taken from it."""
    uri = lake.settings.table_uri(events.key)
    add_events(lake, event(1, 5, "planned"), event(2, 5, "planned"))
    _run(lake, spark, (states, copies))
    add_events(lake, event(1, 6, "left"), event(3, 6, "planned"))
    DeltaTable(uri).delete("id < 3")
    _run(lake, spark, (states, copies))
    DeltaTable(uri).restore(0)
    message = "version 3 of bronze/events is a RESTORE by another program, .* would duplicate rows. .* use `lakehouse rebuild silver/copies`"
    with pytest.raises(Broken, match=message):
        write_table(lake, spark, copies)
    assert rows_in(lake, copies.key, "id", "state") == [
        (1, "left"),
        (1, "planned"),
        (2, "planned"),
        (3, "planned"),
    ]
    assert write_table(lake, spark, states).rows_written == 0
    assert rows_in(lake, states.key, "id", "state") == [(1, "left"), (2, "planned"), (3, "planned")]
