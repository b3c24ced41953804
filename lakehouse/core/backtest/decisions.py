"""Determines when a simulated policy evaluates a table, and whether it compacts the table then."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import assert_never

from lakehouse.core.compaction.plan import CompactionPlan
from lakehouse.core.declaration.compaction_policy import Compaction
from lakehouse.core.declaration.strategies import (
    AfterWrite,
    BySensor,
    Scheduled,
)
from lakehouse.core.declaration.windows_and_cron import cron_times
from lakehouse.core.reasons import Explained
from lakehouse.core.scheduling.ranking import Bounds, choose_compactions
from lakehouse.core.scheduling.table_decision import CompactionCandidate, RunState
from lakehouse.core.scheduling.table_state import TableState
from lakehouse.core.units import HOUR_MS

# Bounds the hourly evaluations between two commits to eight days: within one day, small files reach
# the default age; within seven more days, a window opens.
_HOURS_EVALUATED = 8 * 24


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyDecision(Explained):
    """One decision about a table, and why."""

    runs: bool


def evaluation_times(policy: Compaction, committed_ms: int, until_ms: int | None) -> Iterator[int]:
    """The times at which the table is evaluated after one commit and before the next.

    `until_ms` is the time of the next commit. After the last commit it is `None`: a schedule then
    has no times, and other strategies have only the commit's own time.
    """
    match policy.strategy:
        case BySensor():
            yield committed_ms
            # Without these knobs, nothing changes the decision before the next commit.
            waits_for_time = (
                policy.windows
                or policy.max_small_file_age_hours
                or policy.cooldown_minutes
                or policy.cold_hours
            )
            if until_ms is not None and waits_for_time:
                hours = range(committed_ms + HOUR_MS, until_ms, HOUR_MS)
                yield from hours[:_HOURS_EVALUATED]
        case Scheduled(cron=cron):
            if until_ms is not None:
                yield from cron_times(cron, committed_ms, until_ms)
        case AfterWrite():
            yield committed_ms
        case _:
            assert_never(policy.strategy)


def decide(state: TableState, plan: CompactionPlan, *, now_ms: int) -> PolicyDecision:
    """The decision at `now_ms`: by the sensor's rules or, with another strategy, by the plan."""
    if not isinstance(plan.policy.strategy, BySensor):
        return PolicyDecision(runs=bool(plan.bins), explanation=plan.explanation)
    [decision] = choose_compactions(
        [CompactionCandidate(state=state, policy=plan.policy)],
        RunState(),
        bounds=Bounds(slots=1),
        now_ms=now_ms,
    )
    return PolicyDecision(
        runs=decision.request and bool(plan.bins),
        explanation=decision.explanation,
    )
