"""The operations of upkeep: predicted against actual, and what they cost."""

import json

import pytest

from lakehouse.base.predicted_and_actual import Figure
from lakehouse.compact.plan.history import account_for
from lakehouse.declare.journal_records import CompactionTry, VacuumRecord
from lakehouse.declare.prices import DEFAULT_PRICES
from lakehouse.watch.costs.plan import compactions_of, failed_compactions, moves_of, vacuums_of
from lakehouse_tests.log_builder import START_MS, LogBuilder

PLAN = {
    "reason": "MERGEABLE_FILES",
    "sentence": "2 files merge into 1",
    "files_removed": 2,
    "files_added": 1,
    "bytes_removed": 300,
    "estimate": {"seconds": 3.0, "usd": 0.0001, "bytes_written": 290},
}


def history():
    builder = LogBuilder().create().append([("a", 100, 1), ("b", 200, 2)])
    # Version 2 is committed two minutes after the start, four seconds after its compaction began.
    written = {"compaction": "m", "started_ms": START_MS + 2 * 60_000 - 4_000, "plan": PLAN}
    builder.optimize(["a", "b"], into=("c", 280, 3), user_metadata=json.dumps(written))
    builder.append([("d", 10, 1), ("e", 10, 1)]).optimize(["d", "e"], into=("f", 20, 2))
    return builder.facts().history


def vacuum(ended_ms: int, **fields) -> VacuumRecord:
    numbers = {"version": 2, "predicted_files": 3, "predicted_bytes": 30, "predicted_requests": 0}
    done = {"deleted_files": 3, "deleted_bytes": 30, "spared": 0, "seconds": 2.0, "usd": 0.5}
    return VacuumRecord(
        started_ms=ended_ms - 2_000,
        ended_ms=ended_ms,
        mode="LITE",
        report="",
        horizon_ms=0,
        predicted_seconds=1.0,
        predicted_usd=0.25,
        **{**numbers, **done, **fields},
    )


def test_a_compaction_has_its_plan_s_figures_and_others_have_none() -> None:
    ours, others = compactions_of(
        "bronze/t", account_for(history()).entries, DEFAULT_PRICES, since_ms=0
    )
    assert (ours.reason, ours.seconds, ours.is_ok) == ("MERGEABLE_FILES", 4.0, True)
    assert ours.figures[2:4] == (
        Figure("bytes_removed", 300, 300),
        Figure("bytes_added", 290, 280),
    )
    assert (others.reason, others.figures, others.usd) == ("", (), None)


def test_operations_before_the_shown_days_are_left_out() -> None:
    entries = account_for(history()).entries
    late_ms = START_MS + 3 * 60_000
    assert len(compactions_of("t", entries, DEFAULT_PRICES, since_ms=late_ms)) == 1
    assert len(vacuums_of("t", [vacuum(10), vacuum(20)], DEFAULT_PRICES, since_ms=20)) == 1
    tries = [
        CompactionTry(ended_ms=5, result="conflict", why="lost a race\nto another", seconds=1.5),
        CompactionTry(ended_ms=5, result="succeeded"),
        CompactionTry(ended_ms=4, result="failed"),
    ]
    [failed] = failed_compactions("t", tries, DEFAULT_PRICES, since_ms=5)
    assert (failed.operation_id, failed.is_ok) == ("failed-5", False)
    assert failed.usd == 1.5 * 2 / 3600 * 0.11


def test_an_archive_run_pays_for_its_requests() -> None:
    builder = LogBuilder().create().append([("a", 100, 1)])
    note = {
        "rows_moved": "archive",
        "rows": 1,
        "started_ms": START_MS,
        "requests": {"CopyObject": 3, "HeadObject": 4},
        "plan": {"sentence": "1 partition moves", "reason": "OLD_PARTITIONS", "files": 1, "rows": 1}
        | {"requests": {"CopyObject": 3, "HeadObject": 3}, "seconds": 60.0, "usd": 0.01},
    }
    removed = builder._remove("a", data_change=True)
    builder.commit("DELETE", removed, user_metadata=json.dumps(note))
    [run] = moves_of("t", builder.facts().history, DEFAULT_PRICES, since_ms=0)
    seconds = (run.ended_ms - START_MS) / 1_000
    usd = seconds * 2 / 3600 * 0.11 + 3 * 0.005 / 1_000 + 4 * 0.0004 / 1_000
    assert run.usd == pytest.approx(usd, rel=1e-12)
