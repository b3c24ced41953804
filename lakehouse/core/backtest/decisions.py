"""Determines when a simulated policy evaluates a table, and whether it compacts the table then."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil
from typing import assert_never

from lakehouse.core.compaction.plan import CompactionPlan
from lakehouse.core.declaration.compaction_policy import Compaction
from lakehouse.core.declaration.strategies import (
    AfterWrite,
    AutoCompaction,
    BySensor,
    Chosen,
    OptimizedWrite,
    Scheduled,
)
from lakehouse.core.declaration.windows_and_cron import cron_times
from lakehouse.core.errors import Refused
from lakehouse.core.reasons import Explained
from lakehouse.core.scheduling.ranking import Bounds, choose_compactions
from lakehouse.core.scheduling.read_rates import Readers, with_readers
from lakehouse.core.scheduling.table_decision import CompactionCandidate, RunState
from lakehouse.core.scheduling.table_state import TableState
from lakehouse.core.units import DAY_MS, HOUR_MS

# Bounds the hourly evaluations between two commits to eight days: within one day, small files reach
# the default age; within seven more days, a window opens.
_HOURS_EVALUATED = 8 * 24
# No evaluation is planned further ahead, because with very few reads the time would overflow.
_DAYS_AHEAD = 365_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyDecision(Explained):
    """One decision about a table, and why.

    `again_ms` is when readers will have lost as much as a compaction costs, if no writer commits
    before. The table is evaluated again at this time. `None` if there is no such time ahead.
    """

    runs: bool
    again_ms: int | None = None


def evaluation_times(policy: Compaction, committed_ms: int, until_ms: int | None) -> Iterator[int]:
    """The times at which the table is evaluated after one commit and before the next.

    `until_ms` is the time of the next commit. After the last commit it is `None`: a schedule then
    has no times, and other strategies have only the commit's own time.

    Raises:
        Refused: the strategy cannot be simulated from a log.
    """
    match policy.strategy:
        case BySensor():
            yield committed_ms
            # Without these knobs, only readers' losses can change the decision before the next
            # commit, and `again_ms` has the time of this change.
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
        case OptimizedWrite():
            raise Refused(
                "strategy optimized_write changes the files that writers write, and a log does not "
                "show what they would be, so it cannot be simulated. Use another strategy"
            )
        case AutoCompaction():
            raise Refused(
                "strategy auto_compaction depends on counts in Delta's process that are not in the "
                "log, so it cannot be simulated. Use another strategy"
            )
        case Chosen():
            raise Refused(
                "strategy chosen selects one of the other strategies. Use the selected one"
            )
        case _:
            assert_never(policy.strategy)


def decide(state: TableState, plan: CompactionPlan, *, now_ms: int) -> PolicyDecision:
    """The decision at `now_ms`: by the sensor's rules or, with another strategy, by the plan."""
    if not isinstance(plan.policy.strategy, BySensor):
        return PolicyDecision(runs=bool(plan.bins), explanation=plan.explanation)
    # The log does not show the commits of downstream tables, so only declared reads count.
    state = with_readers(state, Readers(reads_per_day=0), plan.policy, now_ms=now_ms)
    [decision] = choose_compactions(
        [CompactionCandidate(state=state, policy=plan.policy)],
        RunState(),
        bounds=Bounds(slots=1),
        now_ms=now_ms,
    )
    return PolicyDecision(
        runs=decision.request and bool(plan.bins),
        explanation=decision.explanation,
        again_ms=_break_even_ms(state, now_ms=now_ms),
    )


def _break_even_ms(state: TableState, *, now_ms: int) -> int | None:
    """When the losses of readers reach the cost.

    `None` if they have reached it, if they never will, or if losses or cost are unknown.
    """
    balance = state.balance
    openings_per_day = (state.reads_per_day or 0) * (state.openings_saved or 0)
    # The balance if readers had lost the openings of exactly one day.
    daily_balance = replace(state, lost_openings=openings_per_day).balance
    if balance is None or daily_balance is None or balance.is_due:
        return None
    lost, cost = balance.lost_and_cost
    lost_per_day, _ = daily_balance.lost_and_cost
    if not lost_per_day:
        return None
    days = (cost - lost) / lost_per_day
    # One ms is added, so that at the returned time the losses have surely reached the cost.
    return now_ms + ceil(days * DAY_MS) + 1 if days < _DAYS_AHEAD else None
