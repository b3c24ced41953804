"""The circuit breaker of a table: it stops compactions after too many failures in a row.

A breaker opens after three failures in a row and stays open for six hours. Then it is half open and
allows one attempt. If this attempt succeeds, the breaker closes; if it fails, the breaker opens
again for twice the time. Two events count as a failure:

- An automatic compaction failed, or lost a race for its commit.
- The same bytes were rewritten pointlessly, as `find_rewrites` defines it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from operator import itemgetter
from typing import Literal

from lakehouse.core.delta.commits import Commit, Commits, written_in
from lakehouse.core.journal_records import CompactionTry
from lakehouse.core.reasons import Explained, Explanation, Reason
from lakehouse.core.units import HOUR_MS

# After this many attempts at one version, or failures in a row, a table is skipped.
TRIES_ALLOWED = 3
# Short enough that a later batch on the same day finds the breaker half open.
_HOURS = 6
# The pause of six hours grows to at most four days, so a table that keeps failing is still tried
# every few days.
_MOST_DOUBLINGS = 4
_WHY_LETTERS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrites:
    """A series of pointless rewrites of the same bytes: its length, and its last commit."""

    times: int = 0
    bytes_rewritten: int = 0
    version: int = 0
    last_ms: int = 0


NO_REWRITES = Rewrites()


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerState(Explained):
    """Whether earlier compactions allow another one.

    `retry_at_ms` is the time from which one attempt is allowed; `None` if the breaker is closed.
    """

    position: Literal["closed", "open", "half open"]
    retry_at_ms: int | None = None


def assess_breaker(tries: Iterable[CompactionTry], rewrites: Rewrites, now_ms: int) -> BreakerState:
    """The breaker of a table at `now_ms`, from tries in any order. The last try of each run counts.

    Tries that ended after `now_ms` were recorded before a clock was set back, and are ignored.
    """
    ended = _one_per_run(
        each
        for each in tries
        if each.ended_ms <= now_ms and (each.result == "succeeded" or not each.by_person)
    )
    failed = list(takewhile(lambda each: each.result != "succeeded", reversed(ended)))
    succeeded_ms = max((each.ended_ms for each in ended if each.result == "succeeded"), default=0)
    troubles = list[tuple[int, Explanation]]()
    if len(failed) >= TRIES_ALLOWED:
        line = failed[0].why.strip().partition("\n")[0]
        numbers = {
            "conflicts": sum(each.result == "conflict" for each in failed),
            "bytes": sum(each.bytes_rewritten for each in failed),
            "seconds": f"{sum(each.seconds for each in failed):.1f}",
            "why": line if len(line) <= _WHY_LETTERS else f"{line[:_WHY_LETTERS]}…",
        }
        troubles.append(_opened(Reason.BREAKER_OPEN, len(failed), failed[0].ended_ms, **numbers))
    if rewrites.times >= TRIES_ALLOWED and succeeded_ms <= rewrites.last_ms <= now_ms:
        numbers = {"bytes": rewrites.bytes_rewritten, "version": rewrites.version}
        troubles.append(_opened(Reason.REWRITE_LOOP, rewrites.times, rewrites.last_ms, **numbers))
    if not troubles:
        closed = Reason.BREAKER_CLOSED.explain(
            failures=len(failed), times=rewrites.times, limit=TRIES_ALLOWED
        )
        return BreakerState(position="closed", explanation=closed)
    retry_at_ms, explanation = max(troubles, key=itemgetter(0))
    if now_ms < retry_at_ms:
        return BreakerState(position="open", explanation=explanation, retry_at_ms=retry_at_ms)
    half = Reason.HALF_OPEN.explain(retry_at=retry_at_ms, why=explanation.sentence)
    return BreakerState(position="half open", explanation=half, retry_at_ms=retry_at_ms)


def pause_hours(count: int) -> int:
    """How long a table is skipped after `count` failures in a row; `count` >= `TRIES_ALLOWED`."""
    return _HOURS * 2 ** min(count - TRIES_ALLOWED, _MOST_DOUBLINGS)


def tries_of(history: Commits, failures: Iterable[CompactionTry]) -> tuple[CompactionTry, ...]:
    """All compaction attempts of a table: our commits in the log, and the journal's failures.

    A compaction that was undone, by itself or by the next run, counts only as a failure. If a
    compaction lost a race after some of its commits, each commit counts as a success, and the lost
    race as a conflict.
    """
    recorded = tuple(failures)
    undone = history.undone()
    failed_spans = [
        (each.ended_ms - int(each.seconds * 1000), each.ended_ms)
        for each in recorded
        if each.result == "failed"
    ]
    ours = (
        commit for commit in history.commits if _is_ours(commit) and commit.version not in undone
    )
    succeeded = (
        commit
        for commit in ours
        if not any(start <= commit.committed_ms <= end for start, end in failed_spans)
    )
    successes = (
        CompactionTry(
            ended_ms=each.committed_ms, result="succeeded", bytes_rewritten=each.removed_bytes
        )
        for each in succeeded
    )
    return (*successes, *recorded)


def find_rewrites(history: Commits) -> Rewrites:
    """Length of the current series of pointless rewrites, or zero.

    Files are tracked through commits without data change, folder by folder (a partition is a
    folder). Such a commit is pointless if it rewrites outputs of an earlier such commit, merges
    fewer than two new files from writers, and does not halve the number of files. Our own plans
    are never pointless: they merge two new files, or halve the number of files in a second tier.
    REORG has another purpose, so it neither continues nor ends a series. A useful merge, a rewrite
    of rows or a delete ends the series. A useful merge of ours ends all series of the table.
    """
    written: dict[str, Rewrites] = {}
    for commit in history.commits:
        ended = False
        for added, removed in _by_folder(commit):
            before = [found for path in removed if (found := written.pop(path, None)) is not None]
            after = (
                None
                if commit.changed_data
                else _series_after(
                    commit, before, added=len(added), fresh=len(removed) - len(before)
                )
            )
            ended |= after == Rewrites()
            for path in added:
                if after is not None:
                    written[path] = after
                elif commit.changed_data:
                    # The file may be an earlier one with a new deletion vector: its rows changed.
                    written.pop(path, None)
        if ended and _is_ours(commit):
            written = dict.fromkeys(written, Rewrites())
    return max(written.values(), key=_worse, default=Rewrites())


def _opened(reason: Reason, count: int, last_ms: int, **numbers: object) -> tuple[int, Explanation]:
    """The time of the next attempt after `count` failures in a row, and the reason to wait."""
    hours = pause_hours(count)
    retry_at_ms = last_ms + hours * HOUR_MS
    return retry_at_ms, reason.explain(
        count=count, limit=TRIES_ALLOWED, hours=hours, until=retry_at_ms, **numbers
    )


def _one_per_run(tries: Iterable[CompactionTry]) -> list[CompactionTry]:
    """The attempts, oldest first. Of several attempts in one run, the last counts."""
    ordered = sorted(tries, key=lambda each: each.ended_ms)
    last = {each.run: each for each in ordered if each.run}
    return [each for each in ordered if not each.run or last[each.run] is each]


def _by_folder(commit: Commit) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """The paths that a commit added and removed, by folder."""
    folders: dict[str, tuple[list[str], list[str]]] = {}
    for place, paths in enumerate((commit.added_paths, commit.removed_paths)):
        for path in paths:
            folders.setdefault(path.rpartition("/")[0], ([], []))[place].append(path)
    yield from folders.values()


def _series_after(
    commit: Commit, before: Sequence[Rewrites], *, added: int, fresh: int
) -> Rewrites | None:
    """The series of rewrites that the added files continue.

    `None` if the commit removed no file. For example, a commit that computes statistics only adds
    the same files again.
    """
    if not before and not fresh:
        return None
    worst = max(before, key=_worse, default=Rewrites())
    if commit.operation == "REORG":
        return worst
    if not before or fresh >= 2 or len(before) >= 2 * added:
        return Rewrites()
    return Rewrites(
        times=worst.times + 1,
        bytes_rewritten=worst.bytes_rewritten + commit.removed_bytes,
        version=commit.version,
        last_ms=commit.committed_ms,
    )


def _worse(rewrites: Rewrites) -> tuple[int, int]:
    return rewrites.times, rewrites.last_ms


def _is_ours(commit: Commit) -> bool:
    """Whether the commit's metadata marks it as a compaction by this program."""
    return not commit.changed_data and "compaction" in written_in(commit)
