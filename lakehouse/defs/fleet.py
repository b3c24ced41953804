"""The fleet as the compaction sensor sees it: every table's state out of Dagster's records, weighed by the core."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import dagster as dg
from dagster import DagsterRunStatus

from lakehouse.core.breaker import CompactionTry, assess_breaker, hands_off
from lakehouse.core.policy import CompactionPolicy, policy_for
from lakehouse.core.rank import CYCLE_MS, Bounds, Decision, RunState, Try, choose_compactions, run_key
from lakehouse.core.readers import count_reads
from lakehouse.core.reason import Reason
from lakehouse.core.table import Table
from lakehouse.core.trigger import TableState
from lakehouse.defs.instance import (
    NewestFacts,
    RecentRuns,
    ended_requests,
    last_compactions_ms,
    newest_facts_of,
    reader_runs,
    recent_runs,
    runs_in_flight,
    spent_usd,
)
from lakehouse.defs.metadata import sensed_rewrites, sensed_state
from lakehouse.engine.journal import Journal
from lakehouse.engine.lake import Lake
from lakehouse.engine.probe import backoffs, scans

COST_TAG = "lakehouse/estimate_usd"
_TRIES_ALLOWED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What outlasts a tick: since when each table has been due, and the ranking that was reported last."""

    due_since_ms: Mapping[str, int] = field(default_factory=dict[str, int])
    ranking: str = ""
    reported_ms: int = 0

    def as_cursor(self) -> str:
        """The sensor's cursor."""
        return json.dumps({"due_since_ms": dict(self.due_since_ms), "ranking": self.ranking, "reported_ms": self.reported_ms})


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """All tables in one tick: their states by key, and what was decided, best first."""

    states: Mapping[str, TableState]
    decisions: tuple[Decision, ...]

    @property
    def due_since_ms(self) -> Mapping[str, int]:
        """Since when those have been due that go on waiting."""
        return {each.table: each.due_since_ms for each in self.decisions if each.due_since_ms is not None and not each.request}


def read_memory(cursor: str | None) -> Memory:
    """The cursor of an earlier tick; what cannot be read is forgotten, which costs the waiting their places and nothing else."""
    try:
        return Memory(**json.loads(cursor)) if cursor else Memory()
    except (ValueError, TypeError):
        return Memory()


def weigh_fleet(instance: dg.DagsterInstance, tables: Sequence[Table], lake: Lake, memory: Memory, *, now_ms: int) -> Fleet:
    """Every table's state and the decision about it."""
    policies = {table.key: policy_for(table.layer, table.compaction) for table in tables}
    facts, recent = newest_facts_of(instance, tables), recent_runs(instance, now_ms=now_ms)
    compacted_ms = last_compactions_ms(instance, tables)
    states = _with_readers(_states(tables, facts, compacted_ms, memory), tables, policies, recent, now_ms=now_ms)
    runs = RunState(in_flight=runs_in_flight(instance, tables), tries=_tries(instance, states))
    bounds = Bounds(
        slots=lake.settings.compaction_slots,
        budget_usd=lake.settings.compaction_budget_usd,
        spent_usd=spent_usd(recent, tag=COST_TAG, since_ms=now_ms - CYCLE_MS),
        tries_allowed=_TRIES_ALLOWED,
        on_s3=lake.settings.on_s3,
    )
    held = _held(lake, policies, facts, compacted_ms, now_ms=now_ms)
    decisions = choose_compactions(states.values(), policies, runs, bounds=bounds, now_ms=now_ms, hands_off=held)
    return Fleet(states=states, decisions=decisions)


def _states(
    tables: Sequence[Table], facts: Mapping[str, NewestFacts], compacted_ms: Mapping[str, int], memory: Memory
) -> dict[str, TableState]:
    found: dict[str, TableState] = {}
    for table in tables:
        numbers = facts[table.key].numbers if table.key in facts else {}
        found[table.key] = replace(
            sensed_state(table.key, numbers),
            last_compaction_ms=compacted_ms.get(table.key),
            due_since_ms=memory.due_since_ms.get(table.key),
        )
    return found


def _with_readers(
    states: Mapping[str, TableState], tables: Sequence[Table], policies: Mapping[str, CompactionPolicy], recent: RecentRuns, *, now_ms: int
) -> dict[str, TableState]:
    """The states with how often their tables are read: by runs that Dagster saw, and by readers that the declaration tells of."""
    readers = count_reads(tables, reader_runs(recent, tables), since_ms=recent.since_ms, now_ms=now_ms)
    return {
        key: replace(state, reads_per_day=readers[key].reads_per_day + policies[key].reads_per_day, slowdown=readers[key].slowdown)
        for key, state in states.items()
    }


def _tries(instance: dg.DagsterInstance, states: Mapping[str, TableState]) -> tuple[Try, ...]:
    """The ended runs that were asked for these very states; a table with nothing to gain is not looked up."""
    asked: dict[str, TableState] = {}
    for state in states.values():
        if state.version is not None and (state.mergeable_file_count or state.deleted_rows_share):
            asked |= {run_key(state, number): state for number in range(1, _TRIES_ALLOWED + 1)}
    return tuple(
        Try(table=asked[key].table, version=asked[key].version or 0, result=_result(status))
        for key, status in ended_requests(instance, list(asked))
    )


def _result(status: DagsterRunStatus) -> Literal["succeeded", "failed"]:
    return "succeeded" if status is DagsterRunStatus.SUCCESS else "failed"


def _held(
    lake: Lake, policies: Mapping[str, CompactionPolicy], facts: Mapping[str, NewestFacts], compacted_ms: Mapping[str, int], *, now_ms: int
) -> Mapping[str, tuple[Reason, str]]:
    """The tables to keep hands off, with the reason and its sentence."""
    journal = Journal(lake.store)
    pauses, failures, useless, scanned = journal.pauses(), journal.tries_since(compacted_ms), backoffs(lake, now_ms), scans(lake)
    found: dict[str, tuple[Reason, str]] = {}
    for key, policy in policies.items():
        # What needs no log: noted failures, the newest success, the scans of probes, the rewrites that the newest event tells of.
        successes = [CompactionTry(ended_ms=compacted_ms[key], result="succeeded")] if key in compacted_ms else []
        rewrites = sensed_rewrites(facts[key].numbers if key in facts else {})
        breaker = assess_breaker([*failures.get(key, ()), *successes], rewrites, policy, now_ms, scans=scanned.get(key, ()))
        held = hands_off(key, policy, pauses.get(key), breaker, now_ms)
        if held is not None:
            found[key] = (held.reason, held.sentence)
        elif key in useless:
            found[key] = (useless[key].reason, useless[key].sentence)
    return found
