"""The times at which a policy evaluates a table, and its decision at each of them."""

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
from lakehouse.core.scheduling.ranking import (
    Bounds,
    CompactionCandidate,
    RunState,
    choose_compactions,
)
from lakehouse.core.scheduling.read_rates import Readers, with_readers
from lakehouse.core.scheduling.table_state import TableState
from lakehouse.core.units import DAY_MS, HOUR_MS

# After a commit, a table is evaluated every hour for eight days: one day for its files to grow old
# enough, and seven for a window to open. Then it is evaluated again at the next commit.
_HOURS_EVALUATED = 8 * 24
# No evaluation is planned further ahead than this: with very few reads, the time would overflow.
_DAYS_AHEAD = 365_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyDecision(Explained):
    """One decision about a table, and why.

    `again_ms`: the time at which readers will have lost as much as a compaction costs, if no writer
    commits before.
    """

    runs: bool
    again_ms: int | None = None


def evaluation_times(policy: Compaction, committed_ms: int, until_ms: int | None) -> Iterator[int]:
    """The times at which the table is evaluated after one commit and before the next.

    `until_ms` is the time of the next commit, `None` if there is none.

    Raises:
        Refused: the strategy cannot be simulated from a log.
    """
    match policy.strategy:
        case BySensor():
            yield committed_ms
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
            yield from cron_times(cron, committed_ms, until_ms) if until_ms is not None else ()
        case AfterWrite():
            yield committed_ms
        case OptimizedWrite():
            raise Refused(
                "strategy optimized_write changes the files that writers write, so it cannot be "
                "simulated from the log of a table without it. Use another strategy"
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
    """The decision at `now_ms`: by the sensor's rules, or by the plan for other strategies."""
    if not isinstance(plan.policy.strategy, BySensor):
        return PolicyDecision(runs=bool(plan.bins), explanation=plan.explanation)
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
        again_ms=_enough_lost_ms(state, now_ms=now_ms),
    )


def _enough_lost_ms(state: TableState, *, now_ms: int) -> int | None:
    balance = state.balance
    per_day = replace(
        state, lost_openings=(state.reads_per_day or 0) * (state.openings_saved or 0)
    ).balance
    if balance is None or per_day is None or balance.is_due or not per_day.lost_and_cost[0]:
        return None
    lost, cost = balance.lost_and_cost
    days = (cost - lost) / per_day.lost_and_cost[0]
    return now_ms + ceil(days * DAY_MS) + 1 if days < _DAYS_AHEAD else None
