"""The records of past vacuums, and of compactions that did not succeed, in the lake's operations."""

from dataclasses import asdict, replace
from typing import Any
from uuid import uuid4

from lakehouse.base.clock import now_ms
from lakehouse.base.operation import UpkeepOperation, VacuumRecord
from lakehouse.base.text import DAY_MS
from lakehouse.compact.assess import recent_compactions
from lakehouse.declare.table import Table
from lakehouse.lake.lake import Lake
from lakehouse.lake.state_tables import record_operation, vacuum_records
from lakehouse_tests.support.example_histories import failed
from lakehouse_tests.support.example_lake import events


def past_vacuum(started_ms: int, **facts: Any) -> VacuumRecord:
    known = {"ended_ms": started_ms, "mode": "FULL", "version": 0, "horizon_ms": 0, "kept": []}
    return VacuumRecord(started_ms=started_ms, **{**known, **facts})


def record_vacuum(lake: Lake, table: Table, record: VacuumRecord, **facts: Any) -> None:
    """Adds a vacuum to the lake's operations."""
    operation = UpkeepOperation(
        table=table.key,
        kind="vacuum",
        operation_id=uuid4().hex,
        ended_ms=record.ended_ms,
        detail=asdict(record),
        **{"started_ms": record.started_ms, **facts},
    )
    record_operation(lake, operation)


def test_the_vacuums_of_a_table_come_oldest_first(memory: Lake) -> None:
    now = now_ms()
    kept = past_vacuum(now - 1, failed={"f": "denied"}, kept=["g"])
    for record in (past_vacuum(now), kept, past_vacuum(now - 91 * DAY_MS)):
        record_vacuum(memory, events, record)
    assert vacuum_records(memory, events.key) == (kept, past_vacuum(now))
    assert vacuum_records(memory, "bronze/other") == ()


def test_a_record_of_another_version_of_the_program_is_left_out(memory: Lake) -> None:
    now = now_ms()
    operation = UpkeepOperation(
        table=events.key, kind="vacuum", operation_id="1", ended_ms=now, detail={"new": 1}
    )
    record_operation(memory, operation)
    record_vacuum(memory, events, past_vacuum(now))
    assert vacuum_records(memory, events.key) == (past_vacuum(now),)


def test_compactions_of_the_last_month_are_read_by_table(memory: Lake) -> None:
    now = now_ms()
    facts = {"table": events.key, "wasted_bytes": 5, "seconds": 1.5, "why": "a race", "run": "r"}
    failures = [
        failed(now - age_ms, result, by_person=age_ms == 1, **facts)
        for age_ms, result in (
            (31 * DAY_MS, "failed"),
            (30, "failed"),
            (20, "failed"),
            (1, "conflict"),
        )
    ]
    for failure in failures:
        record_operation(memory, failure)
    success = replace(failures[-1], ended_ms=now, operation_id="ours", result="succeeded")
    record_operation(memory, success)
    assert recent_compactions(memory, events.key) == [*failures[1:], success]
    assert recent_compactions(memory) == [*failures[1:], success]
    assert recent_compactions(memory, "bronze/other") == []
