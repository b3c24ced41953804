"""An ALTER aborts whoever else writes, so that none is sent without need."""

from pathlib import Path
from typing import Any

from lakehouse.engine.ingest.table_properties import apply_strategy, declared_properties
from lakehouse.engine.lake import Lake
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.engine.example import copies
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.memory_store import MemoryStore


def test_a_table_that_has_what_it_needs_gets_no_commit(tmp_path: Path) -> None:
    lake = Lake(settings=own_settings(tmp_path), store=MemoryStore())
    facts = LogBuilder(lake.store, copies.key).create(properties=declared_properties(copies)).facts()
    nobody_is_asked: Any = None
    assert apply_strategy(lake, nobody_is_asked, copies, facts) is facts
