"""When a foreign statement is likely to be under way, by the times of earlier ones.

An OPTIMIZE that commits while an UPDATE, DELETE or MERGE of the same files runs makes that one fail: its new files count as added ones.
Our own writers wait for the guard, so only other writers matter here. Nobody can see a statement that has not committed, but the log
tells of earlier ones when they ended and how long they took. A writer that comes at intervals leaves a gap after each commit.
Source: delta-io/delta v4.4.0, `ConflictChecker.scala`, checkForAddedFilesThatShouldHaveBeenReadByCurrentTxn.
"""

from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from lakehouse.core.delta.commits import Commit, Commits

_READ_BEFORE_THEY_WRITE = ("UPDATE", "DELETE", "MERGE")
_OWN = "lakehouse/"  # every transaction id of ours begins with it
_REMEMBERED = 12
_LEAST = 3
_SILENT_AFTER = 3  # intervals without a commit: whoever wrote has stopped
_MOST_WAIT_SECONDS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteIntervals:
    """Medians over the newest foreign statements: `busy_seconds` one takes, `idle_seconds` until the next begins."""

    last_ms: int
    busy_seconds: float
    idle_seconds: float

    def seconds_to_wait(self, *, now_ms: int, seconds: float) -> float:
        """How long a compaction that takes `seconds` waits for the next commit of the others; 0: it begins now.

        It does if it ends before the next statement is expected, if they have stopped, or if it fits into none of their gaps.
        """
        since_last = (now_ms - self.last_ms) / 1000
        interval = self.busy_seconds + self.idle_seconds
        if seconds >= self.idle_seconds or since_last + seconds <= self.idle_seconds or since_last > _SILENT_AFTER * interval:
            return 0.0
        return min(_MOST_WAIT_SECONDS, 2 * interval)


def write_intervals_of(history: Commits) -> WriteIntervals | None:
    """The intervals of foreign statements that read before they write; `None` where there are too few to tell."""
    foreign = [commit for commit in history.commits if _is_foreign(commit)][-_REMEMBERED:]
    if len(foreign) < _LEAST:
        return None
    busy = [_seconds(commit) for commit in foreign]
    # From each commit to the start of the next; none where two ran at the same time.
    idle = [max(0.0, (later.committed_ms - earlier.committed_ms) / 1000 - _seconds(later)) for earlier, later in pairwise(foreign)]
    return WriteIntervals(last_ms=foreign[-1].committed_ms, busy_seconds=median(busy), idle_seconds=median(idle))


def _is_foreign(commit: Commit) -> bool:
    own = any(application.startswith(_OWN) for application in commit.applications)
    return commit.changed_data and commit.operation in _READ_BEFORE_THEY_WRITE and not own


def _seconds(commit: Commit) -> float:
    told = commit.metrics.get("executionTimeMs", "")
    return int(told) / 1000 if told.isdigit() else 0.0
