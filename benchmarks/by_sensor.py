"""The sensor's decision for one table, from its log alone, as the benchmarks ask for it."""

from collections.abc import Sequence
from dataclasses import replace

from lakehouse import AfterWrite, BySensor, Table
from lakehouse.core.compaction.plan import plan_table
from lakehouse.core.declaration.compaction_policy import policy_for
from lakehouse.core.scheduling.ranking import (
    Bounds,
    CompactionCandidate,
    RunState,
    choose_compactions,
)
from lakehouse.core.scheduling.read_rates import Readers, with_readers
from lakehouse.core.scheduling.triggers import state_of
from lakehouse.engine.clock import now_ms
from lakehouse.engine.ingest.table_properties import strategy_in_force
from lakehouse.engine.lake import Lake


def is_due(lake: Lake, table: Table, *, read_ms: Sequence[int] | None = None) -> bool:
    """Whether the table gets a compaction now: by the sensor's decision, or right after a write where that is its strategy.

    `read_ms` are the times at which runs of a table downstream read all of it, `None` where no run does. A batch of a benchmark stands for
    one of an hour, so that such readers are known for more than a day, and the cool-down between two compactions holds none back.
    """
    facts, policy = lake.facts(table.key), policy_for(table.layer, table.compaction)
    plan = plan_table(table, facts.snapshot, facts.history, now_ms=now_ms())
    strategy = strategy_in_force(table, facts).strategy
    if isinstance(strategy, AfterWrite):
        return bool(plan.bins)
    state = state_of(facts.snapshot, plan, history=facts.history)
    state = replace(state, sensor_driven=isinstance(strategy, BySensor))
    if read_ms is not None:
        readers = Readers(reads_per_day=0.0, read_ms=tuple(read_ms), seen=True)
        state = with_readers(state, readers, policy, now_ms=now_ms())
    [decision] = choose_compactions(
        [CompactionCandidate(state=state, policy=policy)],
        RunState(),
        bounds=Bounds(),
        now_ms=now_ms(),
    )
    return decision.request
