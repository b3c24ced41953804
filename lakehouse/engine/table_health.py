"""How a declared table is, from its log alone."""

from lakehouse.core.compaction.plan import plan_or_refusal
from lakehouse.core.declaration.table import Table
from lakehouse.core.scheduling.health import Health, assess_health
from lakehouse.engine.clock import now_ms
from lakehouse.engine.delta_log import TableFacts


def health_of(table: Table, facts: TableFacts) -> Health:
    """The table's health under the policy in force, held against what a compaction would do now, or why none can be planned."""
    return assess_health(facts.layout, plan_or_refusal(table, facts.layout, facts.history, now_ms=now_ms()))
