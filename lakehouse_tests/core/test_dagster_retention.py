from dataclasses import replace
from functools import cache

import pytest

from lakehouse.core.dagster_retention import EVENTS_OF_RUNS, RecordedRun, plan_retention
from lakehouse.core.units import DAY_MS, MINUTE_MS

NOW = 1_800_000_000_000
OLD = RecordedRun(run_id="old", ended_ms=NOW - 8 * DAY_MS, holds_newest=False, has_events=True)


@cache
def newer_runs(count: int) -> tuple[RecordedRun, ...]:
    """So many runs that ended within the last hour, which stay whole by their age."""
    return tuple(
        RecordedRun(run_id=str(number), ended_ms=NOW, holds_newest=False, has_events=True)
        for number in range(count)
    )


def events_that_go(*runs: RecordedRun) -> tuple[str, ...]:
    return plan_retention(runs, days=7, now_ms=NOW).events


def test_events_go_after_the_days_of_the_setting_and_the_run_stays() -> None:
    plan = plan_retention([OLD], days=7, now_ms=NOW)
    assert (plan.events, plan.runs) == (("old",), ())
    assert plan.sentence == "deletes the events of 1 run and the records of 0 runs"
    assert plan_retention([OLD], days=8, now_ms=NOW).sentence == "Nothing to do."


def test_events_go_earlier_where_many_runs_ended_since() -> None:
    today = replace(OLD, ended_ms=NOW - 2 * 60 * MINUTE_MS)
    assert events_that_go(today, *newer_runs(EVENTS_OF_RUNS - 1)) == ()
    assert events_that_go(today, *newer_runs(EVENTS_OF_RUNS)) == ("old",)


@pytest.mark.parametrize(
    "kept",
    [
        replace(OLD, ended_ms=None),
        replace(OLD, holds_newest=True),
        replace(OLD, ended_ms=NOW - 59 * MINUTE_MS),
        replace(OLD, ended_ms=NOW + DAY_MS),  # the clock was set back since
    ],
    ids=[
        "it has not ended",
        "it holds a newest event",
        "it ended just now",
        "it ends in the future",
    ],
)
def test_a_run_that_something_still_needs_stays_whole_however_many_follow(
    kept: RecordedRun,
) -> None:
    assert events_that_go(kept, *newer_runs(EVENTS_OF_RUNS)) == ()
    without_events = replace(kept, has_events=False)
    assert plan_retention([without_events, *newer_runs(60_000)], days=1, now_ms=NOW).runs == ()


@pytest.mark.parametrize(
    ("days_old", "newer", "goes"),
    [(16, 60_000, True), (15, 60_000, False), (16, 59_999, False), (400, 59_999, False)],
)
def test_a_run_goes_only_when_the_planner_no_longer_looks_at_it_and_counts_enough_others(
    days_old: int, newer: int, goes: bool
) -> None:
    run = replace(OLD, ended_ms=NOW - days_old * DAY_MS, has_events=False)
    plan = plan_retention([run, *newer_runs(newer)], days=7, now_ms=NOW)
    assert plan.runs == (("old",) if goes else ())


def test_the_days_of_the_setting_keep_runs_longer_than_the_planner_needs_them() -> None:
    runs = [
        replace(OLD, run_id=f"{days} days", ended_ms=NOW - days * DAY_MS, has_events=False)
        for days in (20, 22)
    ]
    going = {
        days: plan_retention([*runs, *newer_runs(60_000)], days=days, now_ms=NOW).runs
        for days in (7, 21, 30)
    }
    assert going == {7: ("22 days", "20 days"), 21: ("22 days",), 30: ()}


def test_a_long_neglected_lake_is_cleared_from_its_oldest_runs_on_in_portions() -> None:
    runs = [
        replace(OLD, run_id=str(number), ended_ms=NOW - (3_000 - number) * DAY_MS)
        for number in range(2_500)
    ]
    assert events_that_go(*runs) == tuple(str(number) for number in range(2_000))
