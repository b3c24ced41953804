"""The circuit breaker of a table: it stops compactions after too many failures in a row.

A breaker opens after three failures in a row and stays open for six hours. Then it is half open and
allows one attempt. If this attempt succeeds, the breaker closes; if it fails, the breaker opens
again for twice the time (at most four days). Two kinds of failures are counted separately:

- An automatic compaction failed, or lost its commit to another writer. Any later compaction that
  succeeds resets this count, even if a person started it.
- A commit, usually of another program, rewrote the same bytes pointlessly (`find_rewrites`).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Literal

from lakehouse.base.reasons import Explained, Explanation, Reason
from lakehouse.base.text import HOUR_MS
from lakehouse.declare.upkeep_records import UpkeepOperation
from lakehouse.delta.commits import Commit, Commits, written_in

# A table is skipped after this many failed attempts at one version, or failures in a row.
TRIES_ALLOWED = 3
# The breaker first opens for this many hours, so that the table gets another attempt on the same
# day.
_HOURS = 6
# The six hours double with each further failure, up to four days. So a table that keeps failing is
# still tried every few days.
_MOST_DOUBLINGS = 4
# The last error is shown up to this length.
_ERROR_LETTERS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrites:
    """A series of pointless rewrites of the same bytes.

    `times` is its length. `version` and `last_ms` are the version and time of its last commit.
    """

    times: int = 0
    bytes_rewritten: int = 0
    version: int = 0
    last_ms: int = 0


NO_REWRITES = Rewrites()


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerState(Explained):
    """A breaker that is not closed. `retry_at_ms` is the time from which one attempt is allowed."""

    position: Literal["open", "half open"]
    retry_at_ms: int


def assess_breaker(
    failures: Iterable[UpkeepOperation],
    rewrites: Rewrites,
    now_ms: int,
    *,
    succeeded_ms: int | None = None,
) -> BreakerState | None:
    """The breaker of a table at `now_ms`, or `None` if it is closed.

    `failures` are attempts that did not succeed, in any order; the last one of each run counts.
    Compactions that a person started do not count. Times after `now_ms` were recorded before a
    clock was set back, and are ignored. `succeeded_ms` is the time of the last success.
    """
    closed_ms = succeeded_ms if succeeded_ms is not None and succeeded_ms <= now_ms else 0
    failed = _last_of_each_run(
        each for each in failures if closed_ms <= each.ended_ms <= now_ms and not each.by_person
    )
    causes = list[tuple[int, Explanation]]()
    if len(failed) >= TRIES_ALLOWED:
        newest = failed[-1]
        error = newest.why.strip().partition("\n")[0]
        if len(error) > _ERROR_LETTERS:
            error = f"{error[:_ERROR_LETTERS]}…"
        numbers = {
            "conflicts": sum(each.result == "conflict" for each in failed),
            "bytes": sum(each.wasted_bytes for each in failed),
            "seconds": f"{sum(each.seconds or 0.0 for each in failed):.1f}",
            "why": error,
        }
        causes.append(_pause_after(Reason.BREAKER_OPEN, len(failed), newest.ended_ms, **numbers))
    if rewrites.times >= TRIES_ALLOWED and closed_ms <= rewrites.last_ms <= now_ms:
        numbers = {"bytes": rewrites.bytes_rewritten, "version": rewrites.version}
        causes.append(
            _pause_after(Reason.REWRITE_LOOP, rewrites.times, rewrites.last_ms, **numbers)
        )
    if not causes:
        return None
    retry_at_ms, explanation = max(causes, key=itemgetter(0))
    if now_ms < retry_at_ms:
        return BreakerState(position="open", explanation=explanation, retry_at_ms=retry_at_ms)
    half = Reason.HALF_OPEN.explain(retry_at=retry_at_ms, why=explanation.sentence)
    return BreakerState(position="half open", explanation=half, retry_at_ms=retry_at_ms)


def pause_hours(count: int) -> int:
    """How long a table is skipped after `count` failures in a row; `count` >= `TRIES_ALLOWED`."""
    return _HOURS * 2 ** min(count - TRIES_ALLOWED, _MOST_DOUBLINGS)


def last_success_ms(history: Commits, failures: Iterable[UpkeepOperation]) -> int | None:
    """The time of our newest compaction that succeeded; `None` if the log has none.

    A compaction that was undone, by itself or by the next run, is a failure. If a compaction made
    some commits before it lost one to another writer, each of them is a success.
    """
    undone = history.undone()
    failed_spans = [
        (each.started_ms or each.ended_ms, each.ended_ms)
        for each in failures
        if each.result == "failed"
    ]
    times = (
        commit.committed_ms
        for commit in history.commits
        if _is_ours(commit) and commit.version not in undone
    )
    succeeded = (ms for ms in times if not any(start <= ms <= end for start, end in failed_spans))
    return max(succeeded, default=None)


def find_rewrites(history: Commits) -> Rewrites:
    """The longest series of pointless rewrites that has not ended, or `NO_REWRITES`.

    Files are tracked through rewrites (commits without data change), folder by folder, because a
    partition is a folder. A rewrite is pointless if it rewrites outputs of an earlier rewrite,
    merges fewer than two new files from writers, and does not halve the number of these outputs.
    Our own plans are never pointless: they merge two new files, or halve the number of earlier
    outputs. REORG has another purpose, so it neither continues nor ends a series. A useful rewrite,
    an update or a delete of the files ends a series. A useful rewrite of ours ends all series of
    the table.
    """
    series: dict[str, Rewrites] = {}  # by the path of a file that a rewrite added
    for commit in history.commits:
        ends_series = False
        for added, removed in _by_folder(commit):
            earlier = [series.pop(path) for path in removed if path in series]
            after = None  # the series of the added files; `None`: they have none
            if not commit.changed_data:
                new_count = len(removed) - len(earlier)
                after = _series_after(commit, earlier, added=len(added), new_count=new_count)
            if after == NO_REWRITES:
                ends_series = True  # the rewrite was useful
            for path in added:
                if after is not None:
                    series[path] = after
                elif commit.changed_data:
                    # The file may be an earlier one with a new deletion vector: its rows changed.
                    series.pop(path, None)
        if ends_series and _is_ours(commit):
            series = dict.fromkeys(series, NO_REWRITES)
    return max(series.values(), key=_severity, default=NO_REWRITES)


def _pause_after(
    reason: Reason, count: int, last_ms: int, **numbers: object
) -> tuple[int, Explanation]:
    """The time of the next attempt after `count` failures in a row, and the reason to wait."""
    hours = pause_hours(count)
    retry_at_ms = last_ms + hours * HOUR_MS
    return retry_at_ms, reason.explain(
        count=count, limit=TRIES_ALLOWED, hours=hours, until=retry_at_ms, **numbers
    )


def _last_of_each_run(failures: Iterable[UpkeepOperation]) -> list[UpkeepOperation]:
    """The last attempt of each run, and all attempts without a run id, oldest first."""
    ordered = sorted(failures, key=lambda each: each.ended_ms)
    last = {each.run: each for each in ordered if each.run}
    return [each for each in ordered if not each.run or last[each.run] is each]


def _by_folder(commit: Commit) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """The paths that a commit added and removed, by folder."""
    folders: dict[str, tuple[list[str], list[str]]] = {}
    for path in commit.added_paths:
        added, _ = folders.setdefault(path.rpartition("/")[0], ([], []))
        added.append(path)
    for path in commit.removed_paths:
        _, removed = folders.setdefault(path.rpartition("/")[0], ([], []))
        removed.append(path)
    yield from folders.values()


def _series_after(
    commit: Commit, earlier: Sequence[Rewrites], *, added: int, new_count: int
) -> Rewrites | None:
    """The series of rewrites to which the added files of one folder belong.

    `earlier` are the series of the removed files that rewrites had added; `new_count` other files
    were removed. `None` if the commit removed no file of the folder. For example, a commit that
    computes statistics only adds the same files again.
    """
    if not earlier and not new_count:
        return None
    worst = max(earlier, key=_severity, default=NO_REWRITES)
    if commit.operation == "REORG":
        return worst
    if not earlier or new_count >= 2 or len(earlier) >= 2 * added:
        return NO_REWRITES
    return Rewrites(
        times=worst.times + 1,
        bytes_rewritten=worst.bytes_rewritten + commit.removed_bytes,
        version=commit.version,
        last_ms=commit.committed_ms,
    )


def _severity(rewrites: Rewrites) -> tuple[int, int]:
    return rewrites.times, rewrites.last_ms


def _is_ours(commit: Commit) -> bool:
    """Whether the commit's metadata marks it as a compaction by this program."""
    return not commit.changed_data and "compaction" in written_in(commit)
