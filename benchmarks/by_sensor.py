"""The sensor's decision for one table, from its log alone, as the benchmarks ask for it."""

from dataclasses import replace

from lakehouse import AfterWrite, BySensor, Table
from lakehouse.core.compaction.plan import plan_table
from lakehouse.core.declaration.compaction_policy import policy_for
from lakehouse.core.scheduling.health import assess_health
from lakehouse.core.scheduling.ranking import Bounds, RunState, choose_compactions
from lakehouse.core.scheduling.triggers import state_of
from lakehouse.engine.clock import now_ms
from lakehouse.engine.ingest.table_properties import strategy_in_force
from lakehouse.engine.lake import Lake


def is_due(lake: Lake, table: Table) -> bool:
    """Whether the table gets a compaction now: by the sensor's decision, or right after a write where that is its strategy.

    A batch of a benchmark stands for one of an hour, so the cool-down between two compactions never holds one back.
    """
    facts = lake.facts(table.key)
    assert facts is not None
    plan = plan_table(table, facts.snapshot, facts.history, now_ms=now_ms())
    strategy = strategy_in_force(table, facts).strategy
    if isinstance(strategy, AfterWrite):
        return bool(plan.bins)
    state = replace(state_of(facts.snapshot, assess_health(facts.snapshot, plan)), sensor_driven=isinstance(strategy, BySensor))
    policies = {table.key: policy_for(table.layer, table.compaction)}
    [decision] = choose_compactions([state], policies, RunState(), bounds=Bounds(slots=1), now_ms=now_ms())
    return decision.request
