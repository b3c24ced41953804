"""How a declared table is, from its log and the journal."""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass

from lakehouse.core.compaction.plan import plan_or_refusal
from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.commits import Commits
from lakehouse.core.delta.table_facts import TableFacts
from lakehouse.core.errors import LakehouseError
from lakehouse.core.scheduling.circuit_breaker import CompactionTry, Rewrites, find_rewrites, tries_of
from lakehouse.core.scheduling.health import Health, assess_health
from lakehouse.engine.clock import now_ms
from lakehouse.engine.journal.journal import Journal
from lakehouse.engine.lake import Lake


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """A table at one version, planned and judged once for its metadata and its checks; `failures` is `None` where the journal is away."""

    facts: TableFacts
    health: Health
    rewrites: Rewrites
    failures: tuple[CompactionTry, ...] | None

    @property
    def last_compaction_ms(self) -> int | None:
        """When our newest compaction that stayed was committed; `None` where log and journal do not tell."""
        return None if self.failures is None else last_compaction_ms(self.facts.history, self.failures)


def health_of(table: Table, facts: TableFacts) -> Health:
    """The table's health under the policy in force, held against what a compaction would do now, or why none can be planned."""
    return assess_health(facts.snapshot, plan_or_refusal(table, facts.snapshot, facts.history, now_ms=now_ms()))


def last_compaction_ms(history: Commits, failures: Iterable[CompactionTry]) -> int | None:
    """When our newest compaction that stayed was committed; `None` where there was none."""
    return max((each.ended_ms for each in tries_of(history, failures) if each.result == "succeeded"), default=None)


def assess(lake: Lake, table: Table, facts: TableFacts) -> Assessment:
    """The table as these facts and the journal tell it."""
    failures = None
    with contextlib.suppress(LakehouseError):  # a journal that does not answer must not hide what the log tells
        failures = Journal(lake.store).tries(table.key)
    return Assessment(facts=facts, health=health_of(table, facts), rewrites=find_rewrites(facts.history), failures=failures)
