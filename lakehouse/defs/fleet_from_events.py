"""The fleet as the compaction sensor sees it: facts from Dagster's records, and the ranking.

The ranking is an asset that no run materializes, because such a run would take a slot from a
compaction. Instead, the sensor reports a materialization without a run when the ranking changes.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Literal
from urllib.parse import urlsplit

import dagster as dg
from dagster import RunRecord

from lakehouse.core.declaration.table import Table
from lakehouse.core.journal_records import CompactionTry
from lakehouse.core.scheduling.circuit_breaker import TRIES_ALLOWED
from lakehouse.core.scheduling.fleet import (
    Fleet,
    FleetTable,
    decide_fleet,
    has_budgets,
    within_budgets,
)
from lakehouse.core.scheduling.ranking import CYCLE_MS, Bounds, RunState, Try, run_key
from lakehouse.core.scheduling.read_rates import count_reads
from lakehouse.core.scheduling.table_state import TableState, net_benefit_cells
from lakehouse.defs.costs import published_left_usd
from lakehouse.defs.dagster_records import (
    ended_runs,
    is_canceled,
    last_compactions_ms,
    newest_facts,
    pools_at_risk,
    reader_runs,
    recent_runs,
    runs_in_flight,
)
from lakehouse.defs.metadata.markdown import markdown_table, markdown_value
from lakehouse.defs.metadata.table import Metadata, sensed_state
from lakehouse.defs.run_ownership import read_tag, repeated_by_person
from lakehouse.engine.clock import now_ms
from lakehouse.engine.commit_safety import spark_commits_conditionally
from lakehouse.engine.journal.journal import Journal
from lakehouse.engine.lake import Lake

COST_TAG = "lakehouse/estimate_usd"
# The tag of a run that was refused before it began. Its value is the run's id, because Dagster
# copies tags to re-executed runs.
REFUSED = "refused"
_RUN_KEY = "dagster/run_key"
PLAN_KEY = dg.AssetKey(["maintenance", "plan"])
_ROWS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorCursor:
    """What the sensor remembers between ticks: waiting times, and the ranking reported last.

    `shared` lists the present table states for which a shared run was requested, each as its first
    run key. If the shared run fails for a table, the table gets separate runs.
    """

    due_since_ms: Mapping[str, int] = field(default_factory=dict[str, int])
    shared: tuple[str, ...] = ()
    ranking: str = ""
    reported_ms: int = 0

    def as_cursor(self) -> str:
        """The text that Dagster stores as the sensor's cursor."""
        return json.dumps(asdict(self))


def read_cursor(cursor: str | None) -> SensorCursor:
    """The cursor of an earlier tick. If it is unreadable, an empty one: waiting times are lost."""
    try:
        stored = SensorCursor(**json.loads(cursor)) if cursor else SensorCursor()
        due = {str(key): int(since_ms) for key, since_ms in stored.due_since_ms.items()}
        return SensorCursor(
            due_since_ms=due,
            shared=tuple(map(str, stored.shared)),
            ranking=str(stored.ranking),
            reported_ms=int(stored.reported_ms),
        )
    except (ValueError, TypeError, AttributeError):
        return SensorCursor()


def weigh_fleet(
    instance: dg.DagsterInstance,
    tables: Sequence[Table],
    lake: Lake,
    cursor: SensorCursor,
    journal: Journal,
) -> Fleet:
    """The state of every table and the decision about it. No Delta log is read."""
    now = now_ms()
    recent = recent_runs(instance, now_ms=now)
    readers = count_reads(
        tables,
        reader_runs(instance, recent, tables),
        since_ms=recent.since_ms,
        now_ms=now,
        day_is_known=recent.day_is_known,
    )
    known = _with_tries([*_known_tables(instance, tables, lake, cursor, journal)], journal, now)
    if has_budgets(tables, lake.settings.budgets):
        from lakehouse.core.costs.summary import budget_scopes, parse_budgets

        budgets = budget_scopes(tables, parse_budgets(lake.settings.budgets))
        known = within_budgets(known, published_left_usd(instance, budgets, now_ms=now))
    runs = RunState(
        in_flight=runs_in_flight(instance, tables),
        tries=_tries(instance, [each.state for each in known]),
    )
    bounds = Bounds(
        slots=lake.settings.compaction_slots,
        budget_usd=lake.settings.compaction_budget_usd,
        spent_usd=_predicted_usd(recent.records, since_ms=now - CYCLE_MS),
    )
    return decide_fleet(known, readers, runs, bounds=bounds, now_ms=now)


def maintenance_plan() -> dg.AssetSpec:
    """The asset that holds the ranking."""
    return dg.AssetSpec(
        key=PLAN_KEY,
        group_name="maintenance",
        kinds={"table"},
        description="All tables in the order in which they would be compacted, each with its "
        "benefit, cost and reason. Reported by the compaction sensor when the order or a reason "
        "changes, at most once a minute.",
    )


def ranking_metadata(fleet: Fleet) -> Metadata:
    """The ranking as a table (best first, at most 200 rows), and sums over the due tables."""
    ranked = [each for each in fleet.decisions if each.due_since_ms is not None]
    due = [fleet.states[each.table] for each in ranked]
    heads = ["", "table", "reason", "mergeable", "bytes", "USD a day", "USD", "ratio", "why"]
    rows = list[list[str]]()
    for rank, each in enumerate(fleet.decisions[:_ROWS], start=1):
        state = fleet.states[each.table]
        counts = [
            "-" if count is None else f"{count:,}"
            for count in (state.mergeable_file_count, state.mergeable_bytes)
        ]
        rows.append(
            [
                str(rank),
                each.table,
                each.reason.name,
                *counts,
                *net_benefit_cells(each.net_benefit),
                each.sentence,
            ]
        )
    return {
        "lakehouse/ranking": markdown_value(markdown_table(heads, rows)),
        "lakehouse/tables": len(fleet.decisions),
        "lakehouse/tables_due": len(due),
        "lakehouse/tables_requested": sum(each.request for each in fleet.decisions),
        "lakehouse/mergeable_bytes": sum(state.mergeable_bytes or 0 for state in due),
        "lakehouse/estimate_usd": sum(state.estimate_usd or 0.0 for state in due),
        "lakehouse/benefit_usd_per_day": sum(
            gain.benefit_usd_per_day for each in ranked if (gain := each.net_benefit)
        ),
    }


def _known_tables(
    instance: dg.DagsterInstance,
    tables: Sequence[Table],
    lake: Lake,
    cursor: SensorCursor,
    journal: Journal,
) -> Iterator[FleetTable]:
    """The tables with their state from the newest events, Dagster's runs and the journal."""
    facts = newest_facts(instance, tables)
    compacted_ms = last_compactions_ms(instance, tables)
    risks = pools_at_risk(instance, tables)
    pauses = journal.pauses()
    # Determined once per bucket, and once for the disk: each call reads the Spark driver's
    # settings, which would take too long for each table.
    buckets = {table.key: urlsplit(lake.table_uri(table.key)).netloc for table in tables}
    one_table_each = {bucket: key for key, bucket in buckets.items()}
    conditional = {
        bucket: spark_commits_conditionally(lake, key) for bucket, key in one_table_each.items()
    }
    for table in tables:
        key = table.key
        state, rewrites = sensed_state(key, facts.get(key))
        # The log and Dagster may each lack a compaction that the other one recorded.
        times = [ms for ms in (state.last_compaction_ms, compacted_ms.get(key)) if ms is not None]
        state = replace(
            state,
            last_compaction_ms=max(times, default=None),
            due_since_ms=cursor.due_since_ms.get(key),
            on_s3=lake.on_s3(key),
        )
        yield FleetTable(
            table=table,
            state=state,
            rewrites=rewrites,
            pause=pauses.get(key),
            spark_is_conditional=conditional[buckets[key]],
            hold=None if state.engine == "deltalake" else risks.get(key),
            shared_a_run=run_key(state, 1) in cursor.shared,
        )


def _with_tries(known: Sequence[FleetTable], journal: Journal, now: int) -> list[FleetTable]:
    """The tables with their last success, and the failures that the journal has recorded since."""
    succeeded_ms = {
        each.table.key: each.state.last_compaction_ms
        for each in known
        if each.state.last_compaction_ms is not None and each.state.last_compaction_ms <= now
    }
    failures = journal.tries_since(succeeded_ms)
    tables: list[FleetTable] = []
    for each in known:
        key = each.table.key
        tries = [*failures.get(key, ())]
        if key in succeeded_ms:
            tries.append(CompactionTry(ended_ms=succeeded_ms[key], result="succeeded"))
        tables.append(replace(each, tries=tuple(tries)))
    return tables


def _predicted_usd(records: Iterable[RunRecord], *, since_ms: int) -> float:
    """The predicted cost of the runs that were requested since `since_ms`, failed ones included."""
    return sum(
        float(record.dagster_run.tags.get(COST_TAG, 0))
        for record in records
        if record.create_timestamp.timestamp() * 1000 >= since_ms
    )


def _tries(instance: dg.DagsterInstance, states: Sequence[TableState]) -> tuple[Try, ...]:
    """The ended runs that were requested for exactly these states.

    Tables with nothing to gain are skipped. If a person re-executed a run of the sensor, the new
    run has the same tags, and counts only if it succeeded. Tries are numbered without gaps, so a
    state with fewer tries than queried numbers has no others.
    """
    wanted = [
        state
        for state in states
        if state.version is not None and (state.mergeable_file_count or state.deleted_rows_share)
    ]
    tries: list[Try] = []
    first = 1
    last = TRIES_ALLOWED
    while wanted:
        states_by_run_key = {
            run_key(state, number): state for state in wanted for number in range(first, last + 1)
        }
        tries += [
            _try_of(
                states_by_run_key[run.dagster_run.tags[_RUN_KEY]],
                run,
                is_canceled=is_canceled(instance, run),
            )
            for run in ended_runs(instance, {_RUN_KEY: list(states_by_run_key)})
            if run.dagster_run.is_success or not repeated_by_person(run.dagster_run.tags)
        ]
        counts = Counter(each.table for each in tries)
        wanted = [state for state in wanted if counts[state.table] >= last]
        first = last + 1
        last = 2 * last
    return tuple(tries)


def _try_of(state: TableState, record: RunRecord, *, is_canceled: bool) -> Try:
    run = record.dagster_run
    ended_ms = int((record.end_time or record.update_timestamp.timestamp()) * 1000)
    result: Literal["succeeded", "failed", "refused", "canceled"] = "failed"
    if run.is_success:
        result = "succeeded"
    elif read_tag(run.tags, REFUSED) == run.run_id:
        result = "refused"
    elif is_canceled:
        result = "canceled"
    return Try(
        table=state.table,
        version=state.version or 0,
        committed_ms=state.committed_ms,
        result=result,
        ended_ms=ended_ms,
    )
