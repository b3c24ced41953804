"""Reads per day and slower readers, from the runs that wrote what lies downstream."""

from dataclasses import replace

import pytest

from lakehouse.core.declaration.compaction_policy import Compaction
from lakehouse.core.scheduling.read_rates import ReaderRun, Readers, count_reads, with_readers
from lakehouse.core.scheduling.table_state import TableState
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
    found = count_reads(
        (*TABLES, DAILY), runs, since_ms=NOW - DAY_MS, now_ms=NOW, day_is_known=True
    )
    rates = {key: readers.reads_per_day for key, readers in found.items()}
    assert rates == {"bronze/orders": 2, "silver/orders": 1, "gold/totals": 0, "gold/daily": 0}
    assert found["silver/orders"].read_ms == (NOW - 1,)


def test_a_run_that_reads_changes_only_is_no_full_read() -> None:
    found = count_reads(
        TABLES, [run("silver/orders")] * 3, since_ms=NOW - DAY_MS, now_ms=NOW, day_is_known=True
    )
    assert (found["bronze/orders"].reads_per_day, found["bronze/orders"].read_ms) == (0, ())


def test_a_shorter_look_back_is_scaled_to_a_day() -> None:
    found = count_reads(
        TABLES, [run("gold/totals")] * 3, since_ms=NOW - DAY_MS // 4, now_ms=NOW, day_is_known=True
    )
    assert found["silver/orders"].reads_per_day == 12


def test_runs_are_held_against_runs_of_their_own_kind() -> None:
    slower = [
        run("silver/orders", at=NOW - 100 + place, seconds=2.0 if place < 5 else 3.0)
        for place in range(10)
    ]
    whole_lake = [run("silver/orders", "gold/totals", at=NOW - 1, seconds=60.0)]
    found = count_reads(
        TABLES,
        [*whole_lake, *reversed(slower)],
        since_ms=NOW - DAY_MS,
        now_ms=NOW,
        day_is_known=True,
    )
    assert found["bronze/orders"].slowdown == pytest.approx(0.5)
    assert found["silver/orders"].slowdown is None


@pytest.mark.parametrize("day_is_known", [True, False])
def test_readers_are_seen_if_a_table_reads_it_whole_and_a_full_day_is_known(
    day_is_known: bool,
) -> None:
    found = count_reads(TABLES, [], since_ms=NOW - DAY_MS, now_ms=NOW, day_is_known=day_is_known)
    assert [found[table.key].seen for table in TABLES] == [False, day_is_known, False]


def test_reads_before_the_newest_day_are_taken_to_be_as_frequent() -> None:
    """24 reads in the newest day; the table had 2 files too many for 12 days, then 8 for 5."""
    hours = tuple(NOW - hour * DAY_MS // 24 for hour in range(24))
    readers = Readers(reads_per_day=24, since_ms=NOW - DAY_MS, read_ms=hours)
    openings = ((NOW - 12 * DAY_MS, 2), (NOW - 5 * DAY_MS, 8))
    state = TableState(table="silver/orders", openings=openings)
    lost = with_readers(state, readers, Compaction(), now_ms=NOW).lost_openings
    assert lost == pytest.approx(24 * (7 * 2 + 5 * 8))
