"""Who looks at a table between two commits, and when; on backtests whose commits lie hours apart."""

from dataclasses import replace

import pytest

from lakehouse.core.backtest.result import Backtest
from lakehouse.core.backtest.simulate import simulate_history
from lakehouse.core.costs.compaction_speed import DEFAULT_RATES
from lakehouse.core.declaration.compaction_policy import Compaction
from lakehouse.core.declaration.prices import DEFAULT_PRICES, Prices
from lakehouse.core.declaration.strategies import AfterWrite, Scheduled
from lakehouse.core.declaration.windows_and_cron import Window
from lakehouse.core.delta.file_history import FileCommit, FileHistory
from lakehouse.core.reasons import Reason
from lakehouse.core.units import HOUR_MS
from lakehouse_tests.core.example_snapshots import POLICY, data_file, snapshot

SHAPE = snapshot([])
SOON = replace(POLICY, min_small_files=2)


def replayed(
    policy: Compaction, *hours: float, files: int = 1, prices: Prices = DEFAULT_PRICES
) -> Backtest:
    """A table that got `files` files at each of these hours after midnight, and then again a year later."""
    times = [*(round(hour * HOUR_MS) for hour in hours), 365 * 24 * HOUR_MS]
    commits: list[FileCommit] = []
    for version, time in enumerate(times):
        added = tuple(
            replace(data_file(10 * (place + 1), f"{version}-{place}"), modified_ms=time)
            for place in range(files)
        )
        commits.append(
            FileCommit(
                version=version,
                committed_ms=time,
                operation="WRITE",
                changed_data=True,
                added=added,
                shape=SHAPE,
            )
        )
    history = FileHistory(table="t", start=None, commits=tuple(commits))
    return simulate_history(history, policy, rates=replace(DEFAULT_RATES, prices=prices))


def hours_of(backtest: Backtest) -> list[float]:
    """The hours at which it compacted, but for the last commit's."""
    return [round(run.at_ms / HOUR_MS, 2) for moment in backtest.steps[:-1] for run in moment.runs]


def test_the_sensor_looks_at_once() -> None:
    assert hours_of(replayed(SOON, 1, 2.5, 3)) == [2.5]


def test_old_small_files_are_found_between_two_commits() -> None:
    aged = replayed(replace(POLICY, max_small_file_age_hours=24), 1.5, 2)
    assert (hours_of(aged), aged.steps[1].reason) == ([26.0], Reason.DUE_AGE)


def test_a_table_is_waited_for_until_it_is_cold() -> None:
    cold = replace(SOON, cold_hours=6, cooldown_minutes=0)
    assert hours_of(replayed(cold, 1, 2)) == [8.0]


def test_a_window_is_waited_for() -> None:
    night = replace(SOON, windows=(Window(start="22:00", end="23:30"),))
    found = replayed(night, 1, 2)
    assert (hours_of(found), found.steps[1].reason) == ([22.0], Reason.DUE)
    assert found.steps[0].reason is Reason.WINDOW_CLOSED


def test_after_a_run_the_cooldown_is_over_before_the_next() -> None:
    cool = replace(SOON, cooldown_minutes=30)
    assert hours_of(replayed(cool, 1, 1.1, files=2)) == [1.0, 1.5]
    assert hours_of(replayed(replace(SOON, cooldown_minutes=0), 1, 1.1, files=2)) == [1.0, 1.1]


def test_a_backlog_beyond_the_bound_of_one_run_goes_on_when_it_has_cooled_down() -> None:
    bounded = replace(SOON, max_bytes_per_run=100, cooldown_minutes=6)
    assert hours_of(replayed(bounded, 1, files=6)) == [1.0, 1.1]


@pytest.mark.parametrize("strategy", [AfterWrite(), Scheduled(cron="0 6 * * *")])
def test_a_schedule_and_a_writer_look_once_each_time(strategy: AfterWrite | Scheduled) -> None:
    found = replayed(replace(POLICY, strategy=strategy), 1, 2)
    assert hours_of(found) == ([2.0] if isinstance(strategy, AfterWrite) else [6.0])


def test_who_keeps_hands_off_says_why() -> None:
    for policy, reason in (
        (replace(SOON, mode="off"), Reason.OPTED_OUT),
        (replace(SOON, mode="recommend"), Reason.RECOMMEND_ONLY),
        (replace(SOON, mode="off", strategy=AfterWrite()), Reason.OPTED_OUT),
    ):
        found = replayed(policy, 1, 2, 3)
        assert (found.runs, found.steps[0].reason) == ((), reason)
