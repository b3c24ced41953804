"""The fleet as the compaction sensor sees it: every table's state out of Dagster's records, weighed by the core."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Literal

import dagster as dg
from dagster import DagsterRunStatus, RunRecord

from lakehouse.core.declaration.compaction_policy import policy_for
from lakehouse.core.declaration.table import Table
from lakehouse.core.reasons import Explanation
from lakehouse.core.scheduling.circuit_breaker import TRIES_ALLOWED, CompactionTry, Rewrites, assess_breaker, hold_back
from lakehouse.core.scheduling.ranking import CYCLE_MS, Bounds, Decision, RunState, Try, choose_compactions, run_key
from lakehouse.core.scheduling.read_rates import count_reads, with_readers
from lakehouse.core.scheduling.triggers import TableState
from lakehouse.defs.dagster_records import (
    ended_requests,
    last_compactions_ms,
    newest_facts,
    pools_at_risk,
    reader_runs,
    recent_runs,
    runs_in_flight,
    spent_usd,
)
from lakehouse.defs.metadata.table import sensed_state
from lakehouse.defs.run_ownership import read_tag
from lakehouse.engine.compaction.read_probe import NOT_PROBED, ProbeReading, read_probes
from lakehouse.engine.journal.journal import Journal, Records
from lakehouse.engine.lake import Lake

COST_TAG = "lakehouse/estimate_usd"
# The tag of a run that was refused before it began. It names the run, since Dagster copies tags to a run that repeats another.
REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorCursor:
    """What outlasts a tick: since when each table has been due, and the ranking that was reported last."""

    due_since_ms: Mapping[str, int] = field(default_factory=dict[str, int])
    ranking: str = ""
    reported_ms: int = 0

    def as_cursor(self) -> str:
        """The sensor's cursor."""
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """All tables in one tick: their states by key, and what was decided, best first."""

    states: Mapping[str, TableState]
    decisions: tuple[Decision, ...]


def read_cursor(cursor: str | None) -> SensorCursor:
    """The cursor of an earlier tick; what cannot be read is forgotten, which costs the waiting their places and nothing else."""
    try:
        told = SensorCursor(**json.loads(cursor)) if cursor else SensorCursor()
        due = {str(key): int(since_ms) for key, since_ms in told.due_since_ms.items()}
        return SensorCursor(due_since_ms=due, ranking=str(told.ranking), reported_ms=int(told.reported_ms))
    except (ValueError, TypeError, AttributeError):
        return SensorCursor()


def weigh_fleet(
    instance: dg.DagsterInstance, tables: Sequence[Table], lake: Lake, cursor: SensorCursor, *, records: Records, now_ms: int
) -> Fleet:
    """Every table's state and the decision about it; `records` is what the journal holds."""
    policies = {table.key: policy_for(table.layer, table.compaction) for table in tables}
    facts, recent = newest_facts(instance, tables), recent_runs(instance, now_ms=now_ms)
    compacted_ms, probed = last_compactions_ms(instance, tables), read_probes(records, now_ms)
    reads = reader_runs(instance, recent, tables)
    readers = count_reads(tables, reads, since_ms=recent.since_ms, now_ms=now_ms, gaps=recent.gaps)
    sensed = {table.key: sensed_state(table.key, facts.get(table.key)) for table in tables}
    states: dict[str, TableState] = {}
    for table in tables:
        key = table.key
        state = sensed[key][0].at(now_ms)
        # The table's log remembers its newest commits, Dagster the newest compaction: each may have forgotten what the other knows.
        # One that lies ahead is of a clock that was set back since.
        known_ms = [ms for ms in (state.last_compaction_ms, compacted_ms.get(key)) if ms is not None and ms <= now_ms]
        state = replace(
            state,
            last_compaction_ms=max(known_ms, default=None),
            due_since_ms=cursor.due_since_ms.get(key),
            prices=table.prices,
            on_s3=lake.on_s3(key),
            opening_seconds=probed.get(key, NOT_PROBED).opening_seconds,
        )
        states[key] = with_readers(state, readers[key], policies[key], now_ms=now_ms)
    runs = RunState(in_flight=runs_in_flight(instance, tables), tries=_tries(instance, states))
    bounds = Bounds(
        slots=lake.settings.compaction_slots,
        budget_usd=lake.settings.compaction_budget_usd,
        spent_usd=spent_usd(recent, tag=COST_TAG, since_ms=now_ms - CYCLE_MS),
    )
    rewrites = {key: found for key, (_, found) in sensed.items()}
    held = {**_held(Journal(lake.store, records), probed, tables, rewrites, states, now_ms=now_ms), **pools_at_risk(instance, tables)}
    decisions = choose_compactions(states.values(), policies, runs, bounds=bounds, now_ms=now_ms, hold_back=held)
    return Fleet(states=states, decisions=decisions)


def _tries(instance: dg.DagsterInstance, states: Mapping[str, TableState]) -> tuple[Try, ...]:
    """The ended runs that were asked for these very states; a table with nothing to gain is not looked up.

    A try's number is one more than the tries before it, so a state with fewer tries than numbers looked for has no others.
    """
    wanted = [state for state in states.values() if state.version is not None and (state.mergeable_file_count or state.deleted_rows_share)]
    tries: list[Try] = []
    first, last = 1, TRIES_ALLOWED
    while wanted:
        asked = {run_key(state, number): state for state in wanted for number in range(first, last + 1)}
        tries += [_try_of(asked[key], record) for key, record in ended_requests(instance, list(asked))]
        found = Counter(each.table for each in tries)
        wanted = [state for state in wanted if found[state.table] >= last]
        first, last = last + 1, 2 * last
    return tuple(tries)


def _try_of(state: TableState, record: RunRecord) -> Try:
    run, ended_ms = record.dagster_run, int((record.end_time or record.update_timestamp.timestamp()) * 1000)
    result: Literal["succeeded", "failed", "refused"] = "failed"
    if run.status is DagsterRunStatus.SUCCESS:
        result = "succeeded"
    elif read_tag(run.tags, REFUSED) == run.run_id:
        result = "refused"
    return Try(table=state.table, version=state.version or 0, committed_ms=state.committed_ms, result=result, ended_ms=ended_ms)


def _held(
    journal: Journal,
    probed: Mapping[str, ProbeReading],
    tables: Sequence[Table],
    rewrites: Mapping[str, Rewrites],
    states: Mapping[str, TableState],
    *,
    now_ms: int,
) -> Mapping[str, Explanation]:
    """The tables to keep hands off, with the explanation."""
    compacted_ms = {key: state.last_compaction_ms for key, state in states.items() if state.last_compaction_ms is not None}
    pauses, failures = journal.pauses(), journal.tries_since(compacted_ms)
    found: dict[str, Explanation] = {}
    for key, table in {table.key: table for table in tables}.items():
        # What needs no log: noted failures, the newest success, the scans of probes, the rewrites that the newest event tells of.
        successes = [CompactionTry(ended_ms=compacted_ms[key], result="succeeded")] if key in compacted_ms else []
        benefit = probed.get(key, NOT_PROBED)
        breaker = assess_breaker([*failures.get(key, ()), *successes], rewrites[key], now_ms, scans=benefit.scans)
        policy = policy_for(table.layer, table.compaction)
        held = hold_back(key, policy, pauses.get(key), breaker, now_ms, write=table.write) or benefit.backoff
        if held is not None:
            found[key] = held
    return found
