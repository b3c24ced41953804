"""When hands are kept off a table: each reason, when it ends, and that nothing of ours is taken for a loop."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse.base.operation import UpkeepOperation
from lakehouse.base.reasons import Reason
from lakehouse.compact.plan.history import (
    BreakerState,
    Rewrites,
    assess_breaker,
    find_rewrites,
    last_compaction_ms,
)
from lakehouse.delta.commits import Commit, Commits
from lakehouse_tests.support.example_histories import failed

HOUR = 3_600_000
NOON = int(datetime(2026, 11, 20, 12, tzinfo=UTC).timestamp() * 1000)
OURS = json.dumps({"compaction": "0f", "plan": {}})


def tried(result: str, hours: float, **more: Any) -> UpkeepOperation:
    """A try that ended so many hours after noon."""
    return failed(NOON + int(hours * HOUR), result, **more)


def breaker(
    tries: Sequence[UpkeepOperation] = (), now: float = 0, rewrites: Rewrites | None = None
) -> BreakerState | None:
    return assess_breaker(tries, rewrites or Rewrites(), NOON + int(now * HOUR))


def not_closed(*arguments: Any, **more: Any) -> BreakerState:
    found = breaker(*arguments, **more)
    assert found is not None
    return found


FAILED, AHEAD = ([tried("failed", hours + moved) for hours in (-2, -1, 0)] for moved in (0, 9_000))
OF_A_PERSON = [tried(result, 0, by_person=True) for result in ("failed", "conflict") * 3]
ONE_RUN = [*FAILED[:2], tried("conflict", 0, run="r"), tried("succeeded", 1, run="r")]
# The tries, the hour at which it is looked at, the position, and the hour from which one try is let through.
STORIES = {
    "nothing was tried": ([], 0, "closed", None),
    "one failure too few": (FAILED[1:], 0, "closed", None),
    "as many failures as open it": (FAILED, 0, "open", 6),
    "just before the time is over": (FAILED, 5.999, "open", 6),
    "the time is over": (FAILED, 6, "half open", 6),
    "lost races count, too": ([*FAILED[:2], tried("conflict", 0)], 0, "open", 6),
    "those of a person do not": (OF_A_PERSON, 0, "closed", None),
    "a person's failure changes nothing": ([*FAILED, OF_A_PERSON[0]], 6, "half open", 6),
    "a person's success closes it": ([*FAILED, tried("succeeded", 0.1, by_person=True)], 1, "closed", None),
    "a success between them": ([FAILED[0], tried("succeeded", -1.5), *FAILED[1:]], 0, "closed", None),
    "the half-open try succeeds": ([*FAILED, tried("succeeded", 6)], 6, "closed", None),
    "the half-open try fails": ([*FAILED, tried("failed", 6)], 6, "open", 6 + 12),
    "and the next one fails, too": ([*FAILED, tried("failed", 6), tried("failed", 18)], 18, "open", 18 + 24),
    "it is never shut for ever": ([tried("failed", hours) for hours in range(40)], 40, "open", 39 + 16 * 6),
    "failures of a clock that was ahead hold nothing": (AHEAD, 0, "closed", None),
    "a success of a clock that was ahead hides no failure": ([*FAILED, tried("succeeded", 9_000)], 0, "open", 6),
    "one run's attempts are one try": ([tried("failed", hours, run="r") for hours in (-2, -1, 0)], 0, "closed", None),
    "a run that succeeds at last": (ONE_RUN, 1, "closed", None),
}  # fmt: skip


@pytest.mark.parametrize(("tries", "now", "position", "retry"), STORIES.values(), ids=STORIES)
def test_failures_in_a_row_open_the_breaker_and_a_success_closes_it(
    tries: Sequence[UpkeepOperation], now: float, position: str, retry: float | None
) -> None:
    found = breaker(tries, now)
    if retry is None:
        assert (found, position) == (None, "closed")
        return
    assert found is not None
    assert (found.position, found.retry_at_ms) == (position, NOON + int(retry * HOUR))


def test_rewrites_of_a_clock_that_was_ahead_hold_nothing() -> None:
    ahead = NOON + 9_000 * HOUR
    looped = Rewrites(times=3, bytes_rewritten=900, version=6, last_ms=ahead)
    assert breaker(rewrites=looped) is None


def test_an_open_breaker_says_what_failed_how_often_and_until_when() -> None:
    lost = tried("conflict", -0.5, seconds=2.5, wasted_bytes=70)
    found = not_closed([tried("failed", -1), lost, tried("failed", 0, why="no footer\nat …")])
    assert found.reason is Reason.BREAKER_OPEN
    assert found.sentence == (
        "3 compactions in a row failed, 1 of them lost to other writers (70 B and 2.5 s wasted). "
        "The breaker is open for 6 h, until 2026-11-20 18:00 UTC; last error: no footer"
    )


def test_a_half_open_breaker_says_since_when_and_what_was_before() -> None:
    found = not_closed(FAILED, 7)
    assert found.reason is Reason.HALF_OPEN
    assert "since 2026-11-20 18:00 UTC" in found.sentence
    assert "3 compactions in a row" in found.sentence


class Log:
    """Commits told one by one; files are named by their folder and a number."""

    def __init__(self) -> None:
        self.commits: list[Commit] = []
        self.live: list[str] = []

    def append(self, files: int = 1, folder: str = "") -> "Log":
        return self._commit("WRITE", [], files, folder, is_data=True)

    def optimize(
        self, into: int = 1, *, folder: str = "", operation: str = "OPTIMIZE", ours: bool = False
    ) -> "Log":
        removed = [path for path in self.live if path.startswith(folder)]
        return self._commit(operation, removed, into, folder, is_data=False, ours=ours)

    def delete_rows(self) -> "Log":
        """A deletion vector for every file."""
        return self._commit("DELETE", list(self.live), 0, "", is_data=True, again=list(self.live))

    @property
    def rewrites(self) -> Rewrites:
        return find_rewrites(Commits(table="bronze/t", commits=tuple(self.commits)))

    def _commit(
        self,
        operation: str,
        removed: list[str],
        files: int,
        folder: str,
        *,
        is_data: bool,
        ours: bool = False,
        again: Sequence[str] = (),
    ) -> "Log":
        version = len(self.commits)
        added = [*again, *(f"{folder}{version}-{number}" for number in range(files))]
        self.live = [path for path in self.live if path not in removed] + added
        self.commits.append(
            Commit(
                version=version,
                committed_ms=NOON + version,
                operation=operation,
                changed_data=is_data,
                added_paths=tuple(added),
                removed_paths=tuple(removed),
                removed_bytes=100 * len(removed),
                user_metadata=OURS if ours else None,
            )
        )
        return self


def again(*into: int) -> Log:
    """Nine files, and compactions into so many."""
    log = Log().append(9)
    for files in into:
        log.optimize(files)
    return log


def day_by_day(log: Log, *folders: str) -> Log:
    for folder in folders:
        log.append(4, folder).optimize(folder=folder)
    return log


def hourly(log: Log, rounds: int, *, fresh: int) -> Log:
    for _ in range(rounds):
        log.append(fresh).optimize()
    return log


# A log, and how often in a row its bytes were rewritten for nothing.
LOOPS = {
    "written once": (again(1), 0),
    "all anew, to the same end": (again(1, 1, 1, 1), 3),
    "all anew, in the same number of files": (again(4, 4, 3), 2),
    "the large file again for each small one": (hourly(again(1), 3, fresh=1), 3),
    "with two fresh files each time": (hourly(again(1), 5, fresh=2), 0),
    "a second tier": (Log().append(90).optimize(16).optimize(2), 0),
    "deleted rows are taken out": (again(1).delete_rows().optimize(1).delete_rows().optimize(1), 0),
    "REORG neither counts nor ends the row": (
        again(1, 1).optimize(operation="REORG").optimize(),
        2,
    ),
    "a merge with a purpose ends the row": (again(1, 1, 1).append(4).optimize(), 0),
    "new rows in place of the old": (again(1, 1).optimize(operation="WRITE").delete_rows(), 0),
    "each partition for itself": (day_by_day(Log(), "d=1/", "d=2/").optimize(folder="d=1/"), 1),
    "nothing there": (Log(), 0),
}


@pytest.mark.parametrize(("log", "times"), LOOPS.values(), ids=LOOPS)
def test_only_bytes_that_are_rewritten_for_nothing_count(log: Log, times: int) -> None:
    assert log.rewrites.times == times


def test_a_loop_in_one_partition_is_seen_and_a_useful_compaction_of_ours_ends_it() -> None:
    log = Log().append(4, "d=1/").append(4, "d=2/")
    log.optimize(1, folder="d=1/").optimize(1, folder="d=2/")
    for _ in range(3):
        log.optimize(1, folder="d=1/")
    assert log.rewrites == Rewrites(times=3, bytes_rewritten=300, version=6, last_ms=NOON + 6)
    log.append(4, "d=2/").optimize(1, folder="d=2/")
    assert log.rewrites.times == 3
    log.append(4, "d=2/").optimize(1, folder="d=2/", ours=True)
    assert log.rewrites.times == 0


def test_a_commit_that_only_describes_files_anew_moves_no_bytes() -> None:
    log = Log().append(3).optimize()
    log._commit("COMPUTE STATS", [], 0, "", is_data=False, again=list(log.live))
    assert log.optimize().rewrites.times == 1


def test_a_rewrite_loop_opens_the_breaker_with_its_numbers() -> None:
    log = again(1, 1, 1, 1)
    found = not_closed(rewrites=log.rewrites, now=1)
    assert (found.position, found.reason) == ("open", Reason.REWRITE_LOOP)
    assert found.retry_at_ms == NOON + 4 + 6 * HOUR
    row = "rewritten 3 times in a row for nothing, 300 B in all, last by version 4"
    assert row in found.sentence


@given(st.lists(st.tuples(st.integers(2, 5), st.integers(1, 3)), max_size=12))
def test_bins_of_two_fresh_files_are_never_a_loop(rounds: list[tuple[int, int]]) -> None:
    log = Log()
    for fresh, into in rounds:
        log.append(fresh).optimize(into, ours=True)
    assert log.rewrites.times == 0


def test_the_last_compaction_is_the_newest_of_ours_in_the_log() -> None:
    log = Log().append(4).optimize(ours=True).append(4).optimize()
    history = Commits(table="bronze/t", commits=tuple(log.commits))
    assert last_compaction_ms(history) == NOON + 1
    assert last_compaction_ms(Commits(table="bronze/t", commits=tuple(again(1).commits))) is None
