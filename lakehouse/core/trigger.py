"""What makes a table due for a compaction: any one of its policy's triggers, each with its own reason and numbers.

All of it is decided by what the newest event of the table told; what is unknown (`None`) sets nothing off.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from lakehouse.core.health import Health
from lakehouse.core.layout import DataFile, Layout
from lakehouse.core.policy import CompactionPolicy
from lakehouse.core.reason import Reason

_HOUR_MS = 3_600_000
# A quarter of what was declared at least: a cadence that follows the readers, within sight of what a person wrote.
_MOST_HALVINGS = 2
# A compaction of fewer files is none.
_FEWEST_FILES = 2
# So many runs make a mean that one slow run does not turn round.
_ROLLING_RUNS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """What is known of one table; `None` is unknown, and unknown never leads to a run.

    `files_after` are the live files that would remain. `oldest_small_ms` is when the oldest file was written that a compaction would
    merge and none has written. `slowdown` is the share by which the table's readers take longer than they used to. `due_since_ms` is
    since when it has been waiting for its turn. `sensor_driven` tells whether a strategy that is chosen by the table's past is the
    sensor's at present.
    """

    table: str
    version: int | None = None
    mergeable_file_count: int | None = None
    mergeable_bytes: int | None = None
    file_count: int | None = None
    files_after: int | None = None
    size_bytes: int | None = None
    oldest_small_ms: int | None = None
    deleted_rows_share: float | None = None
    estimate_seconds: float | None = None
    estimate_usd: float | None = None
    health_score: float | None = None
    reads_per_day: float | None = None
    slowdown: float | None = None
    last_compaction_ms: int | None = None
    due_since_ms: int | None = None
    sensor_driven: bool | None = None

    @property
    def openings_saved(self) -> int | None:
        """File openings that every full read would be spared."""
        if self.file_count is None or self.files_after is None:
            return None
        return max(0, self.file_count - self.files_after)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Whether a trigger is reached (`fired`), and the reason and sentence of it, or of why none is."""

    fired: bool
    reason: Reason
    sentence: str


def state_of(layout: Layout, health: Health) -> TableState:
    """What the log alone tells of a table: everything but its readers, its runs and its waiting."""
    plan = health.plan
    return TableState(
        table=layout.table,
        version=layout.version,
        mergeable_file_count=health.mergeable_file_count,
        mergeable_bytes=plan.bytes_removed,
        file_count=health.file_count,
        files_after=health.file_count - plan.files_removed + plan.files_added,
        size_bytes=health.size_bytes,
        oldest_small_ms=min((file.modified_ms for bin_ in plan.bins for file in bin_.files if not file.compacted), default=None),
        deleted_rows_share=_deleted_rows_share(layout.files),
        estimate_seconds=plan.estimate.seconds,
        estimate_usd=plan.estimate.usd,
        health_score=health.score,
    )


def find_trigger(state: TableState, policy: CompactionPolicy, *, now_ms: int) -> Finding:
    """The first trigger that is reached, or why none is; the declared order is that of the policy's knobs."""
    threshold, cadence = _threshold(state, policy)
    mergeable = state.mergeable_file_count
    if state.version is None or mergeable is None:
        return _finding(Reason.NO_FACTS, threshold=threshold)
    if mergeable >= threshold:
        return _finding(Reason.DUE, cadence, fired=True, mergeable=mergeable, threshold=threshold)
    if mergeable > 0:
        found = _by_bytes(state, policy) or _by_age(state, policy, now_ms=now_ms) or _by_reads(state, policy)
        if found:
            return found
    return _by_deleted_rows(state, policy) or _finding(Reason.BELOW_THRESHOLD, cadence, mergeable=mergeable, threshold=threshold)


def slowdown_of(seconds: Sequence[float]) -> float | None:
    """The share by which the newest runs took longer than those before them did; `None` where there are too few to tell.

    `seconds` of runs of one kind, oldest first. Held against the median, so that a run that waited for something is no base.
    """
    newest, before = seconds[-_ROLLING_RUNS:], seconds[:-_ROLLING_RUNS]
    if len(before) < _ROLLING_RUNS or not median(before) > 0:
        return None
    return fmean(newest) / median(before) - 1


def _threshold(state: TableState, policy: CompactionPolicy) -> tuple[int, str]:
    """The mergeable files that are wanted now, and why that is not what the policy says; empty where it is."""
    declared, slowdown = policy.min_small_files, state.slowdown
    if not policy.slowdown_share or slowdown is None or slowdown < policy.slowdown_share:
        return declared, ""
    wanted = max(_FEWEST_FILES, round(declared / 2 ** min(_MOST_HALVINGS, int(slowdown / policy.slowdown_share))))
    if wanted == declared:
        return declared, ""
    return wanted, f" ({wanted} for {declared}, since its readers take {slowdown:.0%} longer than they used to)"


def _by_bytes(state: TableState, policy: CompactionPolicy) -> Finding | None:
    found, limit = state.mergeable_bytes, policy.min_mergeable_bytes
    if not limit or found is None or found < limit:
        return None
    return _finding(Reason.DUE_BYTES, fired=True, bytes=found, threshold=limit)


def _by_age(state: TableState, policy: CompactionPolicy, *, now_ms: int) -> Finding | None:
    limit = policy.max_small_file_age_hours
    if not limit or state.oldest_small_ms is None:
        return None
    hours = (now_ms - state.oldest_small_ms) / _HOUR_MS
    if hours < limit:
        return None
    return _finding(Reason.DUE_AGE, fired=True, mergeable=state.mergeable_file_count, hours=f"{hours:.1f}", limit=f"{limit:g}")


def _by_reads(state: TableState, policy: CompactionPolicy) -> Finding | None:
    limit, saved = policy.max_reads_hurt_share, state.openings_saved
    if not limit or not saved or not state.file_count or saved / state.file_count < limit:
        return None
    share = saved / state.file_count
    return _finding(Reason.DUE_READS, fired=True, saved=saved, files=state.file_count, share=f"{share:.0%}", limit=f"{limit:.0%}")


def _by_deleted_rows(state: TableState, policy: CompactionPolicy) -> Finding | None:
    limit, share = policy.purge_deleted_rows_share, state.deleted_rows_share
    if not limit or share is None or share < limit:
        return None
    return _finding(Reason.DUE_DELETED_ROWS, fired=True, share=f"{share:.0%}", limit=f"{limit:.0%}")


def _finding(reason: Reason, more: str = "", *, fired: bool = False, **numbers: object) -> Finding:
    return Finding(fired=fired, reason=reason, sentence=reason.say(**numbers) + more)


def _deleted_rows_share(files: Sequence[DataFile]) -> float | None:
    """The share of the stored rows that deletion vectors hide; `None` where a file does not tell how many rows it has."""
    counts = [file.row_count for file in files if file.row_count is not None]
    if len(counts) < len(files):
        return 0.0 if all(file.deletion_vector is None for file in files) else None
    return sum(file.deleted_row_count for file in files) / sum(counts) if sum(counts) else 0.0
