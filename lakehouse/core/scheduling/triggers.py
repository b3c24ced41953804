"""The triggers of a table's policy; any one of them makes a compaction due.

The readers' losses are the first trigger: a compaction is due when the losses reach its cost
(`read_losses`). It is also due at a number of mergeable files, at an age of the oldest of them, or
at a share of deleted rows. The limits of number and age are small while the readers are unknown,
and larger if reads are declared or observed, because then the losses should decide.
"""

from lakehouse.core.declaration.compaction_policy import Compaction
from lakehouse.core.reasons import Explanation, Reason
from lakehouse.core.scheduling.table_state import TableState
from lakehouse.core.text import utc_text
from lakehouse.core.units import HOUR_MS

# For each full 25 % by which the readers got slower, the number of mergeable files that makes a
# compaction due is halved. On a shared machine, durations of similar runs differ by less.
_SLOWDOWN_SHARE = 0.25
# At most two halvings, to a quarter of the number.
_MOST_HALVINGS = 2
# The limits of file count and file age are multiplied by this factor if readers are observed. It is
# small, because other readers may not be observed.
_SEEN_READERS_FACTOR = 2
_FEWEST_FILES = 2


def find_trigger(state: TableState, policy: Compaction, *, now_ms: int) -> Explanation:
    """The first trigger that is reached, or the reason why no trigger is reached."""
    threshold, note = _threshold(state, policy)
    mergeable = state.mergeable_file_count
    balance = state.balance
    if state.version is None or mergeable is None:
        return Reason.NO_FACTS.explain(threshold=threshold)
    counts = {"mergeable": mergeable, "threshold": threshold}
    if mergeable > 0:
        if balance and balance.is_due:
            return Reason.DUE_READERS.explain(**balance.texts)
        if mergeable >= threshold:
            return Explanation(Reason.DUE, counts, note)
        if trigger := _by_age(state, policy, now_ms=now_ms):
            return trigger
    if trigger := _by_deleted_rows(state, policy):
        return trigger
    cold = state.once_cold
    if cold:
        at = utc_text(cold.at_ms)
        note += f"; {cold.mergeable_file_count} once all of it is cold, from {at} on"
    if mergeable == 0 or balance is None or not _trusts_readers(state):
        return Explanation(Reason.BELOW_THRESHOLD, counts, note)
    return Explanation(Reason.READERS_LOSE_LITTLE, {**balance.texts, **counts}, note)


def is_due(finding: Explanation) -> bool:
    """Whether a trigger is reached."""
    return finding.reason in (
        Reason.DUE_READERS,
        Reason.DUE,
        Reason.DUE_AGE,
        Reason.DUE_DELETED_ROWS,
    )


def _trusts_readers(state: TableState) -> bool:
    """Whether the losses of readers decide, because readers and openings are known."""
    return state.readers != "unknown" and state.openings is not None


def _threshold_factor(state: TableState, policy: Compaction) -> int:
    """The factor for the limits of file count and file age; 1 unless readers' losses decide."""
    if not _trusts_readers(state):
        return 1
    return policy.threshold_factor if state.readers == "declared" else _SEEN_READERS_FACTOR


def _threshold(state: TableState, policy: Compaction) -> tuple[int, str]:
    """The number of mergeable files that makes a compaction due, and a note on that number."""
    declared = policy.min_small_files * _threshold_factor(state, policy)
    slowdown = state.slowdown
    note = ""
    if state.mergeable_file_count and not _trusts_readers(state):
        note = " (as declared, since its reads are unknown)"
    if slowdown is None or slowdown < _SLOWDOWN_SHARE:
        return declared, note
    halvings = min(_MOST_HALVINGS, int(slowdown / _SLOWDOWN_SHARE))
    threshold = max(_FEWEST_FILES, round(declared / 2**halvings))
    if threshold == declared:
        return declared, note
    cause = f"its readers take {slowdown:.0%} longer than before"
    return threshold, f" ({threshold} instead of {declared}, since {cause})"


def _by_age(state: TableState, policy: Compaction, *, now_ms: int) -> Explanation | None:
    limit = policy.max_small_file_age_hours * _threshold_factor(state, policy)
    if not limit or state.oldest_small_ms is None:
        return None
    hours = (now_ms - state.oldest_small_ms) / HOUR_MS
    if hours < limit:
        return None
    return Reason.DUE_AGE.explain(
        mergeable=state.mergeable_file_count, hours=f"{hours:.1f}", limit=f"{limit:g}"
    )


def _by_deleted_rows(state: TableState, policy: Compaction) -> Explanation | None:
    """The trigger of deleted rows, reached only if the plan removes some of them from storage."""
    limit = policy.purge_deleted_rows_share
    share = state.deleted_rows_share
    if not limit or share is None or share < limit or not state.purged_row_count:
        return None
    return Reason.DUE_DELETED_ROWS.explain(share=f"{share:.0%}", limit=f"{limit:.0%}")
