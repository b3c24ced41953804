"""Reads per day and slower readers, from the runs that wrote what lies downstream."""

from dataclasses import replace

import pytest

from lakehouse.base.text import DAY_MS
from lakehouse.compact.plan.decision import ReaderRun, count_reads
from lakehouse_tests.support.example_assets import TABLES, orders, totals

NOW = 100 * DAY_MS
DAILY = replace(totals, key="gold/daily", inputs=(orders,))


def run(*tables: str, at: int = NOW - 1, seconds: float | None = None) -> ReaderRun:
    return ReaderRun(tables=frozenset(tables), ended_ms=at, seconds=seconds)


def test_a_run_that_writes_a_table_reads_its_inputs() -> None:
    runs = [
        run("gold/daily"),
        run("gold/daily", "gold/totals"),
        run("bronze/orders"),
        run("gold/totals", at=NOW - 2 * DAY_MS),
    ]
    found = count_reads((*TABLES, DAILY), runs, since_ms=NOW - DAY_MS, now_ms=NOW)
    rates = {key: readers.reads_per_day for key, readers in found.items()}
    assert rates == {"bronze/orders": 2, "silver/orders": 1, "gold/totals": 0, "gold/daily": 0}


def test_a_run_that_reads_changes_only_is_no_full_read() -> None:
    found = count_reads(TABLES, [run("silver/orders")] * 3, since_ms=NOW - DAY_MS, now_ms=NOW)
    assert found["bronze/orders"].reads_per_day == 0


def test_a_shorter_look_back_is_scaled_to_a_day() -> None:
    found = count_reads(TABLES, [run("gold/totals")] * 3, since_ms=NOW - DAY_MS // 4, now_ms=NOW)
    assert found["silver/orders"].reads_per_day == 12


def test_runs_are_held_against_runs_of_their_own_kind() -> None:
    slower = [
        run("silver/orders", at=NOW - 100 + place, seconds=2.0 if place < 5 else 3.0)
        for place in range(10)
    ]
    whole_lake = [run("silver/orders", "gold/totals", at=NOW - 1, seconds=60.0)]
    found = count_reads(TABLES, [*whole_lake, *reversed(slower)], since_ms=NOW - DAY_MS, now_ms=NOW)
    assert found["bronze/orders"].slowdown == pytest.approx(0.5)
    assert found["silver/orders"].slowdown is None
    compacted = {"bronze/orders": NOW - 99}  # only eight runs since
    found = count_reads(TABLES, slower, since_ms=NOW - DAY_MS, now_ms=NOW, compacted_ms=compacted)
    assert found["bronze/orders"].slowdown is None
