"""The records of past vacuums."""

from typing import Any

from lakehouse.declare.journal_records import VacuumRecord
from lakehouse.lake.journal import record_vacuum, vacuum_records
from lakehouse_tests.memory_store import MemoryStore

KEY = "bronze/events"


def past_vacuum(started_ms: int) -> VacuumRecord:
    counts = (
        "predicted_files",
        "predicted_bytes",
        "predicted_requests",
        "predicted_seconds",
        "predicted_usd",
        "deleted_files",
    )
    zeros: dict[str, Any] = dict.fromkeys(
        (*counts, "deleted_bytes", "spared", "version", "horizon_ms"), 0
    )
    return VacuumRecord(started_ms=started_ms, ended_ms=started_ms, mode="FULL", report="", **zeros)


def test_the_newest_vacuums_of_each_table_are_kept() -> None:
    store = MemoryStore()
    store.put(f"_lakehouse/vacuums/{KEY}/notes.txt", b"a person's")
    store.put(f"_lakehouse/vacuums/bronze/events_too/{1:015}-1.json", b"another table's")
    for ms in range(103):
        record_vacuum(store, KEY, past_vacuum(ms))
    assert [each.started_ms for each in vacuum_records(store, KEY)] == list(range(53, 103))
    assert len(store.list("_lakehouse/vacuums")) == 100 + 2


def test_a_damaged_record_is_left_out() -> None:
    store = MemoryStore()
    record_vacuum(store, KEY, past_vacuum(1))
    store.put(f"_lakehouse/vacuums/{KEY}/{2:015}-2.json", b"{")
    assert [each.started_ms for each in vacuum_records(store, KEY)] == [1]
