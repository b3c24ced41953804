"""The triggers of a table's policy; any one of them makes a compaction due.

A compaction is due at a number of mergeable files, at an age of the oldest of them, when the
table's readers got slower since its last compaction, or at a share of deleted rows.
"""

from lakehouse.core.declaration.compaction_policy import Compaction
from lakehouse.core.reasons import Explanation, Reason
from lakehouse.core.scheduling.table_state import TableState
from lakehouse.core.text import utc_text
from lakehouse.core.units import HOUR_MS

# A compaction is due when the readers take this share longer than after the last one. On a shared
# machine, durations of similar runs differ by less.
_SLOWDOWN_SHARE = 0.25
# Fewer files are never merged, so slower readers cannot make a compaction due.
_FEWEST_FILES = 2
_DUE = (Reason.DUE, Reason.DUE_AGE, Reason.READS_SLOWER, Reason.DUE_DELETED_ROWS)


def find_trigger(state: TableState, policy: Compaction, *, now_ms: int) -> Explanation:
    """The first trigger that is reached, or the reason why no trigger is reached."""
    threshold = policy.min_small_files
    mergeable = state.mergeable_file_count
    if state.version is None or mergeable is None:
        return Reason.NO_FACTS.explain(threshold=threshold)
    counts = {"mergeable": mergeable, "threshold": threshold}
    if mergeable > 0 and mergeable >= threshold:
        return Reason.DUE.explain(**counts)
    trigger = (
        _by_age(state, policy, mergeable, now_ms=now_ms)
        or _by_slower_reads(state, mergeable)
        or _by_deleted_rows(state, policy)
    )
    if trigger is not None:
        return trigger
    note = ""
    cold = state.once_cold
    if cold:
        at = utc_text(cold.at_ms)
        note = f"; {cold.mergeable_file_count} once all of it is cold, from {at} on"
    return Explanation(Reason.BELOW_THRESHOLD, counts, note)


def is_due(finding: Explanation) -> bool:
    """Whether a trigger is reached."""
    return finding.reason in _DUE


def _by_age(
    state: TableState, policy: Compaction, mergeable: int, *, now_ms: int
) -> Explanation | None:
    limit = policy.max_small_file_age_hours
    if not mergeable or not limit or state.oldest_small_ms is None:
        return None
    hours = (now_ms - state.oldest_small_ms) / HOUR_MS
    if hours < limit:
        return None
    return Reason.DUE_AGE.explain(mergeable=mergeable, hours=f"{hours:.1f}", limit=f"{limit:g}")


def _by_slower_reads(state: TableState, mergeable: int) -> Explanation | None:
    slowdown = state.slowdown
    if slowdown is None or slowdown < _SLOWDOWN_SHARE or mergeable < _FEWEST_FILES:
        return None
    return Reason.READS_SLOWER.explain(slowdown=f"{slowdown:.0%}", mergeable=mergeable)


def _by_deleted_rows(state: TableState, policy: Compaction) -> Explanation | None:
    """The trigger of deleted rows, reached only if the plan removes some of them from storage."""
    limit = policy.purge_deleted_rows_share
    share = state.deleted_rows_share
    if not limit or share is None or share < limit or not state.purged_row_count:
        return None
    return Reason.DUE_DELETED_ROWS.explain(share=f"{share:.0%}", limit=f"{limit:.0%}")
