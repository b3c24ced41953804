"""The looks at a table between two commits of its writers: their times and their decisions; for a simulation."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil
from typing import assert_never

from lakehouse.core.compaction.plan import CompactionPlan
from lakehouse.core.declaration.compaction_policy import Compaction
from lakehouse.core.declaration.cron import cron_times
from lakehouse.core.declaration.prices import Prices
from lakehouse.core.declaration.strategies import AfterWrite, AutoCompaction, BySensor, Chosen, OptimizedWrite, Scheduled
from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.core.errors import Refused
from lakehouse.core.reasons import Explained
from lakehouse.core.scheduling.health import assess_health
from lakehouse.core.scheduling.ranking import Bounds, RunState, choose_compactions
from lakehouse.core.scheduling.read_losses import type_of_steps
from lakehouse.core.scheduling.read_rates import Readers, with_readers
from lakehouse.core.scheduling.triggers import TableState, state_of
from lakehouse.core.units import DAY_MS, HOUR_MS

# The sensor looks every few seconds; between two commits only time passes, and a table waits for hours: a day for
# the age of files, a week for a window. A table that waits longer is looked at again at the next commit.
_HOURS_LOOKED_AT = 8 * 24
# No table waits so long for its readers; of fewer reads, the time is beyond what a number holds.
_DAYS_AHEAD = 365_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Look(Explained):
    """The decision of one look at a table, and why; by `again_ms` its readers will have lost a compaction's price, if nobody writes."""

    runs: bool
    again_ms: int | None = None


def look_times(policy: Compaction, committed_ms: int, until_ms: int | None) -> Iterator[int]:
    """When a table is looked at after a commit of `committed_ms` and before the next one of `until_ms` (`None`: nobody wrote again).

    Raises:
        Refused: a strategy under which the writers would have written other files, or which is none before it is chosen.
    """
    match policy.strategy:
        case BySensor():
            yield committed_ms
            waits_for_time = policy.windows or policy.max_small_file_age_hours or policy.cooldown_minutes or policy.cold_hours
            if until_ms is not None and waits_for_time:
                hours = range(committed_ms + HOUR_MS, until_ms, HOUR_MS)
                yield from hours[:_HOURS_LOOKED_AT]
        case Scheduled(cron=cron):
            yield from cron_times(cron, committed_ms, until_ms) if until_ms is not None else ()
        case AfterWrite():
            yield committed_ms
        case OptimizedWrite():
            raise Refused("strategy optimized_write changes what writers write, which no log of other writes tells; accepted: the others")
        case AutoCompaction():
            raise Refused("strategy auto_compaction goes by counts that live in Delta's own process, not in the log; accepted: the others")
        case Chosen():
            raise Refused("strategy chosen is one of the others once it is chosen; accepted: that one")
        case _:
            assert_never(policy.strategy)


def look(
    snapshot: Snapshot,
    plan: CompactionPlan,
    *,
    now_ms: int,
    last_run_ms: int | None,
    prices: Prices,
    openings: type_of_steps | None = None,
) -> Look:
    """The decision of a look at a table with this plan: the sensor's own, and under the other strategies the plan's.

    `openings` are the openings that a compaction would have saved each full read since the last one; readers come as declared.
    `prices` are those of the plan's estimate.
    """
    if not isinstance(plan.policy.strategy, BySensor):
        return Look(runs=bool(plan.bins), explanation=plan.explanation)
    state = state_of(snapshot, assess_health(snapshot, plan))
    state = replace(state, last_compaction_ms=last_run_ms, openings=openings, prices=prices)
    state = with_readers(state, Readers(reads_per_day=0, slowdown=None), plan.policy, now_ms=now_ms)
    [decision] = choose_compactions([state], {plan.table: plan.policy}, RunState(), bounds=Bounds(slots=1), now_ms=now_ms)
    again_ms = _enough_lost_ms(state, now_ms=now_ms)
    return Look(runs=decision.request and bool(plan.bins), explanation=decision.explanation, again_ms=again_ms)


def next_look_ms(policy: Compaction, ended_ms: int) -> int | None:
    """When the sensor looks at a table again after a run; `None` under the other strategies, which look at their own times."""
    return ended_ms + round(policy.cooldown_minutes * 60_000) if isinstance(policy.strategy, BySensor) else None


def _enough_lost_ms(state: TableState, *, now_ms: int) -> int | None:
    balance = state.balance
    a_day = replace(state, lost_openings=(state.reads_per_day or 0) * (state.openings_saved or 0)).balance
    if balance is None or a_day is None or balance.is_due or not a_day.lost_and_cost[0]:
        return None
    lost, cost = balance.lost_and_cost
    days = (cost - lost) / a_day.lost_and_cost[0]
    return now_ms + ceil(days * DAY_MS) + 1 if days < _DAYS_AHEAD else None
