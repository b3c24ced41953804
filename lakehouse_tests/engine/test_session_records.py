"""The record of the Spark session that writes a table."""

from pathlib import Path

import pytest

from lakehouse.core.errors import Broken
from lakehouse.engine.store import DiskStore
from lakehouse.engine.table_lock import forget_session, record_session, session_of
from lakehouse_tests.memory_store import MemoryStore

KEY = "bronze/events"


def test_a_session_record_lies_where_the_documents_say(tmp_path: Path) -> None:
    record_session(DiskStore(tmp_path), KEY, "s", "write")
    assert (tmp_path / "_lakehouse/sessions/bronze/events.json").is_file()


def test_a_session_is_remembered_until_it_is_forgotten_and_no_other_takes_it_away() -> None:
    store = MemoryStore()
    assert session_of(store, KEY) is None
    record_session(store, KEY, "11111111-2222-3333-4444-555555555555", "write")
    record_session(store, KEY, "66666666-7777-8888-9999-000000000000", "compaction")
    record = session_of(store, KEY)
    assert record is not None
    assert (record.session_id, record.owner) == (
        "66666666-7777-8888-9999-000000000000",
        "compaction",
    )
    assert record.started_ms > 1_700_000_000_000
    forget_session(store, KEY, "11111111-2222-3333-4444-555555555555")
    assert session_of(store, KEY) == record
    for _ in range(2):
        forget_session(store, KEY, record.session_id)
        assert session_of(store, KEY) is None


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"session_id": "x", "owner": "y"}'])
def test_a_damaged_session_record_is_broken_and_named_with_the_way_out(content: bytes) -> None:
    store = MemoryStore()
    store.put("_lakehouse/sessions/bronze/events.json", content)
    with pytest.raises(
        Broken,
        match=r"_lakehouse/sessions/bronze/events\.json.*\. First stop .*lakehouse server stop.*, then delete this record",
    ):
        session_of(store, KEY)
