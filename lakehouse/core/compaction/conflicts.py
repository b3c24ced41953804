"""A compaction beside other writers: OPTIMIZE loses to whoever changed one of its files first, and an UPDATE, DELETE or MERGE loses to it.

A compaction that lost is planned again without the partitions in which files were taken from under it; where that leaves nothing,
or the table has no partitions, with half of the bytes. Each loss narrows the next try further. Our own writers wait for the guard. A
statement of others that has not committed is seen by nobody, but the log tells of earlier ones when they ended and how long they took: a
writer that comes at intervals leaves a gap after each commit.
Source: delta-io/delta v4.4.0, `ConflictChecker.scala`: of what commits first, only the removal of a file that OPTIMIZE read fails it; its
new files count as added ones for the others (checkForAddedFilesThatShouldHaveBeenReadByCurrentTxn).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from lakehouse.core.compaction.plan import CompactionPlan
from lakehouse.core.costs.estimate import Rates, estimate
from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.commits import Commit, Commits
from lakehouse.core.delta.partition_values import by_name, type_of_typed_partition, typed_partition
from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.core.scheduling.circuit_breaker import CompactionTry

_READ_BEFORE_THEY_WRITE = ("UPDATE", "DELETE", "MERGE")
_OWN = "lakehouse/"  # every transaction id of ours begins with it
_REMEMBERED = 12
_LEAST = 3
_SILENT_AFTER = 3  # intervals without a commit: whoever wrote has stopped
_MOST_WAIT_SECONDS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A try that was to rewrite `planned_bytes` and lost the race for its commit, since others removed files of these partitions."""

    partitions: frozenset[type_of_typed_partition]
    planned_bytes: int
    ended: CompactionTry


def partitions_removed_from(
    snapshot: Snapshot, commits: Iterable[Commit]
) -> frozenset[type_of_typed_partition]:
    """The partitions of `snapshot` from which `commits`, made after it, took files, or put others with deletion vectors in their place."""
    columns = by_name(snapshot.columns)
    paths = {path for commit in commits if commit.changed_data for path in commit.removed_paths}
    return frozenset(
        typed_partition(file.partition, columns) for file in snapshot.files if file.path in paths
    )


def half_of(table: Table, loss: Loss) -> Table:
    """The table with its compaction bound to half of the bytes that it was to rewrite before the loss."""
    return replace(
        table,
        compaction=replace(table.compaction, max_bytes_per_run=max(1, loss.planned_bytes // 2)),
    )


def without_partitions(
    plan: CompactionPlan,
    snapshot: Snapshot,
    partitions: frozenset[type_of_typed_partition],
    *,
    rates: Rates,
) -> CompactionPlan:
    """The same plan without these partitions; it has no bins where nothing else is left, or the table has none."""
    columns = by_name(snapshot.columns)
    kept = tuple(
        bin_
        for bin_ in plan.bins
        if snapshot.partition_columns and typed_partition(bin_.partition, columns) not in partitions
    )
    limited = tuple(
        each for each in plan.partitions or () if typed_partition(each, columns) not in partitions
    )
    smaller = replace(plan, bins=kept, partitions=limited or None)
    left = plan.files_removed - smaller.files_removed
    sizes = {
        "files_removed": smaller.files_removed,
        "bytes_removed": smaller.bytes_removed,
        "files_added": smaller.files_added,
    }
    return replace(
        smaller,
        explanation=replace(
            plan.explanation,
            more=f"{plan.explanation.more}; {left} of these files are left to other writers",
        ),
        files_left=plan.files_left + left,
        estimate=estimate(
            rates, **sizes, on_s3=snapshot.on_s3, compared=smaller.verify == "content"
        ),
    )


def seconds_to_wait(history: Commits, *, now_ms: int, seconds: float) -> float:
    """The seconds that a compaction of `seconds` waits for the next commit of foreign statements that read before they write.

    It begins now (0) if it ends before the next statement is expected, if they have stopped, if it fits into none of their gaps, or if they
    are too few to tell.
    """
    foreign = [commit for commit in history.commits if _is_foreign(commit)][-_REMEMBERED:]
    if len(foreign) < _LEAST:
        return 0.0
    # From each commit to the start of the next; none where two ran at the same time.
    idle = [
        (later.committed_ms - earlier.committed_ms) / 1000 - _seconds(later)
        for earlier, later in pairwise(foreign)
    ]
    idle_seconds = median(max(0.0, each) for each in idle)
    interval = median(map(_seconds, foreign)) + idle_seconds
    since_last = (now_ms - foreign[-1].committed_ms) / 1000
    if (
        seconds >= idle_seconds
        or since_last + seconds <= idle_seconds
        or since_last > _SILENT_AFTER * interval
    ):
        return 0.0
    return min(_MOST_WAIT_SECONDS, 2 * interval)


def _is_foreign(commit: Commit) -> bool:
    own = any(application.startswith(_OWN) for application in commit.applications)
    return commit.changed_data and commit.operation in _READ_BEFORE_THEY_WRITE and not own


def _seconds(commit: Commit) -> float:
    told = commit.metrics.get("executionTimeMs", "")
    return int(told) / 1000 if told.isdigit() else 0.0
