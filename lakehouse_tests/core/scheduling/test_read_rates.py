"""Reads per day and slower readers, from the runs that wrote what lies downstream."""

from dataclasses import replace

import pytest

from lakehouse.core.declaration.compaction_policy import Compaction
from lakehouse.core.scheduling.read_rates import ReaderRun, RunGap, count_reads, with_readers
from lakehouse.core.scheduling.triggers import TableState
from lakehouse.core.units import DAY_MS
from lakehouse_tests.defs.example import TABLES, orders, totals

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
    assert found["silver/orders"].read_ms == (NOW - 2 * DAY_MS, NOW - 1)


def test_a_run_that_reads_changes_only_is_no_full_read() -> None:
    found = count_reads(TABLES, [run("silver/orders")] * 3, since_ms=NOW - DAY_MS, now_ms=NOW)
    assert (found["bronze/orders"].reads_per_day, found["bronze/orders"].read_ms) == (0, ())


@pytest.mark.parametrize(("oldest_ms", "seen"), [(NOW - DAY_MS, True), (NOW - DAY_MS + 1, False)])
def test_readers_are_seen_after_a_day_of_runs_and_only_where_some_table_reads_it_whole(
    oldest_ms: int, seen: bool
) -> None:
    found = count_reads(
        TABLES, [run("bronze/orders", at=oldest_ms)], since_ms=NOW - DAY_MS, now_ms=NOW
    )
    assert [found[table.key].seen for table in TABLES] == [False, seen, False]
    assert not any(
        readers.seen
        for readers in count_reads(TABLES, [], since_ms=NOW - DAY_MS, now_ms=NOW).values()
    )


def test_runs_that_were_not_looked_at_are_taken_to_read_as_often_as_the_others() -> None:
    """An hourly reader of twelve days, and as many other runs, of which the first two days and the last were looked at."""
    hours = [hour for hour in range(1, 12 * 24 + 1) if hour <= 24 or hour > 240]
    runs = [
        run(*tables, at=NOW - hour * DAY_MS // 24)
        for hour in hours
        for tables in (["gold/totals"], [])
    ]
    gap = RunGap(from_ms=NOW - 10 * DAY_MS, until_ms=NOW - DAY_MS, run_count=2 * 9 * 24)
    readers = count_reads(TABLES, runs, since_ms=NOW - DAY_MS, now_ms=NOW, gaps=[gap])[
        "silver/orders"
    ]
    assert readers.unseen == ((gap.from_ms, gap.until_ms, pytest.approx(24)),)
    state = TableState(
        table="silver/orders", openings=((NOW - 12 * DAY_MS, 2), (NOW - 5 * DAY_MS, 8))
    )
    lost = with_readers(state, readers, Compaction(), now_ms=NOW).lost_openings
    assert lost == pytest.approx(24 * (7 * 2 + 5 * 8), rel=0.01)
    none = count_reads(TABLES, [], since_ms=NOW - DAY_MS, now_ms=NOW, gaps=[gap])["silver/orders"]
    assert with_readers(state, none, Compaction(), now_ms=NOW).lost_openings == 0


def test_a_backfill_of_long_ago_is_no_rule_for_what_was_not_looked_at() -> None:
    backfill = [run("gold/totals", at=NOW - 14 * DAY_MS)] * 500
    today = [run("gold/totals"), *[run()] * 39]
    gap = RunGap(from_ms=NOW - 14 * DAY_MS, until_ms=NOW - DAY_MS, run_count=520)
    [(_, _, per_day)] = count_reads(
        TABLES, [*backfill, *today], since_ms=NOW - DAY_MS, now_ms=NOW, gaps=[gap]
    )["silver/orders"].unseen
    assert per_day == pytest.approx(1)


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


def test_runs_of_days_before_are_the_base_and_no_reads() -> None:
    tables = (orders, replace(totals, inputs=(orders,)))
    days = [run("gold/totals", at=NOW - day * DAY_MS, seconds=2.0) for day in range(2, 9)]
    today = [run("gold/totals", at=NOW - 10 + place, seconds=3.0) for place in range(5)]
    found = count_reads(tables, [*days, *today], since_ms=NOW - DAY_MS, now_ms=NOW)
    assert (found["bronze/orders"].reads_per_day, found["bronze/orders"].slowdown) == (
        5,
        pytest.approx(0.5),
    )
