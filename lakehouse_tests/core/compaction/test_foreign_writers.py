"""When a compaction waits for a foreign commit, and when it does not."""

import pytest

from lakehouse.core.compaction.foreign_writers import WriteIntervals, write_intervals_of
from lakehouse.core.delta.commits import Commit, Commits

EVERY_TEN_SECONDS = WriteIntervals(last_ms=100_000, busy_seconds=2, idle_seconds=8)


def _history(*commits: Commit) -> Commits:
    return Commits(table="bronze/t", commits=commits)


def _commit(second: float, operation: str = "MERGE", *, seconds: float = 2, changed_data: bool = True, own: bool = False) -> Commit:
    return Commit(
        version=int(second),
        committed_ms=int(second * 1000),
        operation=operation,
        changed_data=changed_data,
        metrics={"executionTimeMs": str(int(seconds * 1000))},
        applications={"lakehouse/consume/bronze/x/1": 1} if own else {"spark-app": 1},
    )


@pytest.mark.parametrize(
    ("now_ms", "seconds", "waits"),
    [
        pytest.param(100_500, 2, 0, id="just after a commit"),
        pytest.param(106_000, 2, 0, id="it ends in time"),
        pytest.param(106_001, 2, 20, id="it would end when the next has begun"),
        pytest.param(109_000, 1, 20, id="the next has probably begun"),
        pytest.param(100_500, 8, 0, id="it fits into no gap"),
        pytest.param(130_001, 2, 0, id="they have stopped"),
    ],
)
def test_the_next_foreign_commit_is_waited_for_only_where_that_helps(now_ms: int, seconds: float, waits: float) -> None:
    assert EVERY_TEN_SECONDS.seconds_to_wait(now_ms=now_ms, seconds=seconds) == waits


def test_nothing_is_waited_for_longer_than_twenty_seconds() -> None:
    hourly = WriteIntervals(last_ms=0, busy_seconds=60, idle_seconds=3540)
    assert hourly.seconds_to_wait(now_ms=3_541_000, seconds=10) == 20


def test_a_rhythm_is_that_of_foreign_statements_that_read_before_they_write() -> None:
    foreign = [_commit(second) for second in (10, 20, 32, 40)]
    others = [
        _commit(41, "WRITE"),
        _commit(42, "OPTIMIZE", changed_data=False),
        _commit(43, own=True),
    ]
    assert write_intervals_of(_history(*foreign, *others)) == WriteIntervals(last_ms=40_000, busy_seconds=2, idle_seconds=8)
    assert write_intervals_of(_history(*foreign[:2], *others)) is None
    assert write_intervals_of(_history()) is None


def test_statements_that_overlap_leave_no_gap() -> None:
    write_intervals = write_intervals_of(_history(*[_commit(second, seconds=5) for second in (10, 12, 14)]))
    assert write_intervals is not None
    assert write_intervals.idle_seconds == 0
    assert write_intervals.seconds_to_wait(now_ms=15_000, seconds=1) == 0
