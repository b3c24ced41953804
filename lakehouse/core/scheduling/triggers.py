"""The triggers of a table's policy; any one of them makes a compaction due.

The readers' losses are the first trigger: a compaction is due when the losses reach its cost
(`read_losses`). In any case, a compaction is due at a number of mergeable files. This number is
small while some readers may be unknown, and larger once all readers are known.
"""

from lakehouse.core.declaration.compaction_policy import Compaction
from lakehouse.core.reasons import Explanation, Reason
from lakehouse.core.scheduling.table_state import TableState
from lakehouse.core.text import utc_text
from lakehouse.core.units import HOUR_MS

# Runs of one kind on a shared machine differ by less than a quarter.
_SLOWDOWN_SHARE = 0.25
# The threshold never falls below a quarter of the declared number.
_MOST_HALVINGS = 2
# Some readers may not be observed, so a table with observed readers waits for at most this multiple
# of the declared bounds.
_SEEN_READERS = 2
_FEWEST_FILES = 2


def find_trigger(state: TableState, policy: Compaction, *, now_ms: int) -> Explanation:
    """The first trigger that is reached, or the reason why none is."""
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
    more = note + (
        f"; {cold.mergeable_file_count} once all of it is cold, from {utc_text(cold.at_ms)} on"
        if cold
        else ""
    )
    if mergeable == 0 or balance is None or not _trusts_readers(state):
        return Explanation(Reason.BELOW_THRESHOLD, counts, more)
    return Explanation(Reason.READERS_LOSE_LITTLE, {**balance.texts, **counts}, more)


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


def _bound_times(state: TableState, policy: Compaction) -> int:
    """The multiple of the declared bounds that a table may wait for its readers' losses."""
    if not _trusts_readers(state):
        return 1
    return policy.threshold_factor if state.readers == "declared" else _SEEN_READERS


def _threshold(state: TableState, policy: Compaction) -> tuple[int, str]:
    """The number of mergeable files that makes a compaction due, and a note on that number."""
    declared = policy.min_small_files * _bound_times(state, policy)
    slowdown = state.slowdown
    why = (
        ""
        if _trusts_readers(state) or not state.mergeable_file_count
        else " (its readers are unknown)"
    )
    if slowdown is None or slowdown < _SLOWDOWN_SHARE:
        return declared, why
    wanted = max(
        _FEWEST_FILES, round(declared / 2 ** min(_MOST_HALVINGS, int(slowdown / _SLOWDOWN_SHARE)))
    )
    if wanted == declared:
        return declared, why
    cause = f"its readers take {slowdown:.0%} longer than before"
    return wanted, f" ({wanted} instead of {declared}, since {cause})"


def _by_age(state: TableState, policy: Compaction, *, now_ms: int) -> Explanation | None:
    limit = policy.max_small_file_age_hours * _bound_times(state, policy)
    if not limit or state.oldest_small_ms is None:
        return None
    hours = (now_ms - state.oldest_small_ms) / HOUR_MS
    return (
        None
        if hours < limit
        else Reason.DUE_AGE.explain(
            mergeable=state.mergeable_file_count, hours=f"{hours:.1f}", limit=f"{limit:g}"
        )
    )


def _by_deleted_rows(state: TableState, policy: Compaction) -> Explanation | None:
    """The trigger of deleted rows, if the plan removes some of them from storage."""
    limit = policy.purge_deleted_rows_share
    share = state.deleted_rows_share
    if not limit or share is None or share < limit or not state.purged_row_count:
        return None
    return Reason.DUE_DELETED_ROWS.explain(share=f"{share:.0%}", limit=f"{limit:.0%}")
