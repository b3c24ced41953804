"""Reasons to skip a table, however much a compaction would gain. Such a reason is called a hold.

The table's state may be another reason: a run in flight, a cooldown, failed tries
(`table_decision.py`), or partitions that were written recently (`compaction/choose_partitions.py`).
"""

from lakehouse.core.declaration.compaction_policy import Compaction, policy_for
from lakehouse.core.declaration.table import Table
from lakehouse.core.journal_records import Pause
from lakehouse.core.reasons import Explanation, Reason
from lakehouse.core.scheduling.circuit_breaker import BreakerState


def find_hold(
    table: Table,
    *,
    pause: Pause | None,
    breaker: BreakerState | None,
    now_ms: int,
) -> Explanation | None:
    """Why the sensor skips `table` at `now_ms`, or `None`.

    A half-open, closed or unknown (`None`) breaker is no reason to skip.
    """
    policy = policy_for(table.layer, table.compaction)
    breaker_hold = breaker.explanation if breaker and breaker.position == "open" else None
    return persons_hold(policy, pause, now_ms) or recommend_only(table.key, policy) or breaker_hold


def persons_hold(policy: Compaction, pause: Pause | None, now_ms: int) -> Explanation | None:
    """The hold that also refuses a compaction by a person without `--anyway`, or `None`.

    All other holds only stop the sensor.
    """
    if policy.mode == "off":
        return Reason.OPTED_OUT.explain(said="mode off")
    return pause.explanation if pause is not None and pause.holds(now_ms) else None


def recommend_only(table_key: str, policy: Compaction) -> Explanation | None:
    """The hold of a policy that only recommends compactions, or `None`."""
    if policy.mode != "recommend":
        return None
    return Reason.RECOMMEND_ONLY.explain(
        why=f"its declaration says mode {policy.mode}", table=table_key
    )
