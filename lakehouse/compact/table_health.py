"""The health of a table, and the cost of its compactions: log and operations of the lake."""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, replace

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import LakehouseError
from lakehouse.compact.noted_files import plan_with_notes
from lakehouse.compact.plan.circuit_breaker import Rewrites, find_rewrites, tries_of
from lakehouse.compact.plan.compaction import CompactionPlan, plan_or_refusal
from lakehouse.compact.plan.health import Health, assess_health
from lakehouse.compact.plan.history import Account, CompactionOutcome, account_for
from lakehouse.compact.tries import failed_tries
from lakehouse.declare.journal_records import CompactionTry
from lakehouse.declare.table import Table
from lakehouse.delta.commits import Commits
from lakehouse.delta.snapshot import Snapshot, TableFacts
from lakehouse.lake.lake import Lake


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """A table at one version, assessed once for both its metadata and its checks.

    `failures` are the newest failed compactions; `None` if they cannot be read.
    """

    facts: TableFacts
    health: Health
    rewrites: Rewrites
    failures: tuple[CompactionTry, ...] | None


def health_of(lake: Lake, table: Table, facts: TableFacts) -> Health:
    """The table's health under its current policy, based on the plan of a compaction now."""

    def plan(snapshot: Snapshot, factor: float | None) -> CompactionPlan:
        return plan_or_refusal(table, snapshot, facts.history, now_ms=now_ms(), lake_factor=factor)

    return assess_health(facts.snapshot, plan_with_notes(lake, facts, plan))


def last_compaction_ms(history: Commits, failures: Iterable[CompactionTry] | None) -> int | None:
    """The time of our newest successful compaction (see `tries_of`).

    `None` if the log has no such compaction, or if the `failures` are unknown (`None`).
    """
    tries = () if failures is None else tries_of(history, failures)
    return max((each.ended_ms for each in tries if each.result == "succeeded"), default=None)


def assess(lake: Lake, table: Table, facts: TableFacts) -> Assessment:
    """Assesses a table, based on these facts, its failures, and the current time."""
    failures = None
    # Unreadable operations must not hide what the log shows.
    with contextlib.suppress(LakehouseError):
        failures = failed_tries(lake, table.key)
    return Assessment(
        facts=facts,
        health=health_of(lake, table, facts),
        rewrites=find_rewrites(facts.history),
        failures=failures,
    )


def account_of(lake: Lake, table: Table, facts: TableFacts) -> Account:
    """The cost account up to the version of these facts, including recorded failures."""
    failed = failed_tries(lake, table.key, newest=None)
    return account_for(facts.history, failed, prices=table.prices, on_s3=facts.snapshot.on_s3)


def with_account(lake: Lake, table: Table, outcome: CompactionOutcome) -> CompactionOutcome:
    """The outcome with the cost account up to its commit.

    The outcome is unchanged without a commit or facts, or if the operations cannot be read, because
    the compaction itself has succeeded.
    """
    newest = outcome.version_after
    facts = outcome.facts
    if newest is None or facts is None:
        return outcome
    commits = tuple(commit for commit in facts.history.commits if commit.version <= newest)
    history = replace(facts.history, commits=commits)
    with contextlib.suppress(LakehouseError):
        account = account_of(lake, table, replace(facts, history=history))
        return replace(outcome, account=account)
    return outcome
