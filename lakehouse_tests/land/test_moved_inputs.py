"""Who read a table under its earlier key goes on where it was: nothing twice, nothing lost. Logs are written, no Spark."""

from dataclasses import replace
from typing import Any

import pytest

from lakehouse import Table
from lakehouse.base.errors import Broken
from lakehouse.lake.lake import Lake
from lakehouse.materialize import run as derived_inputs
from lakehouse.materialize.plan import NothingNew, ReadChanges, consume_app_id
from lakehouse.vacuum.facts import LakeFacts, gather
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.support.example_lake import copies, events, facts_of, states

NEW = "bronze/happenings"
moved = replace(events, key=NEW)
ID = "the id of the events"


def table_at(lake: Lake, key: str, *, versions: int) -> LogBuilder:
    """The events under a key, with an append for each version after the first."""
    log = LogBuilder(lake.store, key, table_id=ID).create()
    for _ in range(versions):
        log.append([(f"f{log.version}", 1)])
    return log


def increment_of(lake: Lake, reader: Table) -> Any:
    """What a reader reads of the moved events."""
    target = facts_of(lake, reader.key)
    return derived_inputs.next_increment(lake, reader, facts_of(lake, NEW), target)


@pytest.mark.parametrize("reader", [copies, states])
def test_a_reader_finds_its_version_under_the_earlier_key(memory: Lake, reader: Table) -> None:
    old = table_at(memory, events.key, versions=3).snapshot()
    new = table_at(memory, NEW, versions=3)
    own = LogBuilder(memory.store, reader.key, table_id="own").create()
    own.append([("a", 1)], transaction=(consume_app_id(old), 3))
    assert isinstance(increment_of(memory, reader), NothingNew)
    new.append([("late", 1)])
    found = increment_of(memory, reader)
    assert isinstance(found, ReadChanges) and found.ranges == ((4, 4),)
    own.append([("b", 1)], transaction=(consume_app_id(new.snapshot()), 4))
    assert isinstance(increment_of(memory, reader), NothingNew)


def test_an_older_copy_of_a_moved_input_is_broken_under_either_key(memory: Lake) -> None:
    old = table_at(memory, events.key, versions=5).snapshot()
    new = table_at(memory, NEW, versions=2)
    own = LogBuilder(memory.store, copies.key, table_id="own").create()
    own.append([("a", 1)], transaction=(consume_app_id(new.snapshot()), 2))
    own.append([("b", 1)], transaction=(consume_app_id(old), 5))
    with pytest.raises(Broken, match="it has consumed version 5 of bronze/happenings, which no"):
        increment_of(memory, copies)


def test_a_vacuum_keeps_what_a_reader_of_the_earlier_key_still_needs(memory: Lake) -> None:
    old = table_at(memory, events.key, versions=3).snapshot()
    memory.store.delete([file.name for file in memory.store.list(events.key)])
    table_at(memory, NEW, versions=4)
    own = LogBuilder(memory.store, copies.key, table_id="own").create()
    own.append([("a", 1)], transaction=(consume_app_id(old), 3))
    reader = replace(copies, inputs=(moved,), transform=lambda happenings: happenings)
    inputs = gather(LakeFacts(memory, [moved, reader]), moved)
    assert inputs is not None and copies.key in inputs.needed_because
