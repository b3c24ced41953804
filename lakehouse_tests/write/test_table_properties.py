"""An ALTER aborts whoever else writes, so that none is sent without need."""

from pathlib import Path
from typing import Any

import pytest

from lakehouse import Debezium, Landing, Merge, Table
from lakehouse.base.errors import Refused
from lakehouse.lake.lake import Lake, TableSession
from lakehouse.write.commit_rows import apply_properties, declared_properties
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.memory_store import MemoryStore
from lakehouse_tests.support.example_lake import copies


def session_of(lake: Lake, table: Table) -> TableSession:
    """A session without Spark, so that each statement fails."""
    nobody_is_asked: Any = None
    return TableSession(lake=lake, spark=nobody_is_asked, table=table)


def test_a_table_that_has_what_it_needs_gets_no_commit(tmp_path: Path) -> None:
    lake = Lake(settings=own_settings(tmp_path), store=MemoryStore())
    facts = (
        LogBuilder(lake.store, copies.key)
        .create(properties=declared_properties(copies, {}))
        .facts()
    )
    assert apply_properties(session_of(lake, copies), facts) is facts


def test_change_data_is_merged_by_the_keys_that_the_table_was_made_with(tmp_path: Path) -> None:
    lake = Lake(settings=own_settings(tmp_path), store=MemoryStore())
    source = Landing(
        prefix="landing/people/", format="json", schema="id BIGINT, part BIGINT", changes=Debezium()
    )
    by_both, by_one, turned = (
        Table(key="bronze/people", source=source, write=Merge(keys=keys))
        for keys in (("id", "part"), ("id",), ("part", "id"))
    )
    facts = (
        LogBuilder(lake.store, by_both.key)
        .create(properties=declared_properties(by_both, {}), columns={"id": "long", "part": "long"})
        .facts()
    )
    assert apply_properties(session_of(lake, turned), facts) is facts
    message = (
        r'to be merged by \["id"\], and were merged by \["id", "part"\].*restore the declaration'
    )
    with pytest.raises(Refused, match=message):
        apply_properties(session_of(lake, by_one), facts)
