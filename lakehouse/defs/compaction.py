"""One compaction asset per table, the one sensor that decides which of them run, and the schedules of those that go by the clock.

A compaction is an asset of its own: it changes no row, and a materialization of the table would say that it did and
set off everything downstream. On the table's own key it leaves an observation with the new counts, and fresh checks.
It depends on no asset: Dagster would call it "Unsynced" after each write, though there is nothing to merge. Its metadata names the table.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import dagster as dg
from dagster_pyspark import LazyPySparkResource

from lakehouse.core.compaction.outcome import CompactionOutcome
from lakehouse.core.declaration.adopted import Adopted
from lakehouse.core.declaration.compaction_policy import policy_for
from lakehouse.core.declaration.strategies import AfterWrite, Scheduled
from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.snapshot import TableFacts
from lakehouse.core.errors import LakehouseError, Refused, Transient
from lakehouse.core.ingest.outcome import WriteOutcome
from lakehouse.core.reasons import Reason
from lakehouse.core.scheduling.holds import closed_window
from lakehouse.core.scheduling.ranking import Decision, describe
from lakehouse.core.scheduling.table_state import TableState
from lakehouse.defs.dagster_records import pools_at_risk, runs_in_flight
from lakehouse.defs.failures import dagster_words
from lakehouse.defs.fleet_from_events import (
    COST_TAG,
    REFUSED,
    read_cursor,
    report_ranking,
    weigh_fleet,
)
from lakehouse.defs.health import report_checks
from lakehouse.defs.keys import compaction_key, pool_of, table_key
from lakehouse.defs.metadata.table import compaction_metadata, table_metadata
from lakehouse.defs.pool_slots import free_ended_slots
from lakehouse.defs.resources import open_session
from lakehouse.defs.run_ownership import (
    asked_by_person,
    close_lost_runs,
    machine_tag,
    process_tag,
)
from lakehouse.engine.adoption.find_tables import is_table
from lakehouse.engine.clock import now_ms
from lakehouse.engine.compaction.holds import hold_now, refuse_held
from lakehouse.engine.journal.journal import Journal, JournalCache
from lakehouse.engine.lake import Lake
from lakehouse.engine.store import TimeBudget
from lakehouse.engine.table_health import assess, with_account

# On S3, how late a record is found that no marker tells of. A folder is listed in each tick, for nothing.
SWEEP_MS = 600_000


class CompactionConfig(dg.Config):
    """Options for one run. `anyway`: also if the table is paused or opted out; `probe`: measure it."""

    anyway: bool = False
    probe: bool = False


def compaction_asset(table: Table, lake: Lake, *, resource: str = "spark") -> dg.AssetsDefinition:
    """The compaction of a table: a fresh plan under the table's guard, the merge, and the account of both. `resource` gives its session."""

    @dg.asset(
        key=compaction_key(table),
        metadata={"lakehouse/table": dg.MetadataValue.asset(table_key(table))},
        op_tags={"dagster/priority": "-1"},  # in a run that writes tables, too, after them
        output_required=False,
        group_name="compaction",
        kinds={"deltalake", "pyspark"},
        pool=pool_of(table),
        required_resource_keys={resource},
        description=f"Merges the small files of {table.key}. Changes no row, so nothing downstream follows.",
    )
    def compaction(
        context: dg.AssetExecutionContext, config: CompactionConfig
    ) -> Iterator[dg.MaterializeResult[Any]]:
        from lakehouse.engine.compaction.run import compact

        context.instance.add_run_tags(context.run.run_id, process_tag(context.run.run_id))
        spark: LazyPySparkResource = getattr(context.resources, resource)
        with dagster_words(context):
            _refuse_what_may_not_begin(context, lake, table, anyway=config.anyway)
            if (
                not isinstance(table.write, Adopted)
                and not is_table(lake.store, table.key)
                and lake.facts(table.key) is None
            ):
                context.log.info(f"{table.key}: there is no table yet")
                return
            session = open_session(context, spark)
            try:
                outcome = compact(
                    lake,
                    session,
                    table,
                    owner=f"run {context.run.run_id}",
                    by_person=asked_by_person(context.run.tags),
                )
            except Exception:
                with suppress(
                    Exception
                ):  # what went wrong is the one to tell; the breaker may be open by it
                    report_checks(context, table, lake, fails=True)
                raise
        if outcome.facts is not None:
            report_table(context, table, lake, outcome.facts)
        outcome = _measured(context, lake, table, outcome, spark if config.probe else None)
        context.log.info(f"{table.key}: {outcome.plan.sentence}")
        if outcome.version_after is None:
            for sentence in outcome.sentences:
                context.log.warning(f"{table.key}: {sentence}")
        yield dg.MaterializeResult(metadata=compaction_metadata(outcome))

    return compaction


def refuse_closed_window(table: Table, tags: Mapping[str, str], *, now_ms: int) -> None:
    """Nothing, if a run with these tags may begin: the window in which a sensor or schedule requested it may have closed meanwhile.

    A person's run is not held.

    Raises:
        Refused: no window is open.
    """
    if asked_by_person(tags):
        return
    held = closed_window(policy_for(table.layer, table.compaction), now_ms)
    if held is not None:
        raise Refused(
            f"compact {table.key}: {held.sentence}. Either wait for it, or use lakehouse compact {table.key}"
        )


def compact_after_write(
    context: dg.AssetExecutionContext,
    table: Table,
    lake: Lake,
    spark: LazyPySparkResource,
    written: WriteOutcome,
) -> tuple[TableFacts | None, Exception | None]:
    """Compacts where the strategy says so and the plan finds something; the table after it, and an error to be raised once all is told.

    1. The rows are committed before this begins, and stay whatever happens here.
    2. The table's guard is taken anew, while the run still holds the table's pool: nobody else's run comes between.
    3. The compaction is recorded under its own asset, as if it had been a run of its own.

    A compaction that could not be made now is told and no more: the next write finds its files still there.
    """
    from lakehouse.engine.compaction.run import compact

    # A run that wrote nothing tries, too: the one before may have ended between its write and its compaction.
    if (
        written.strategy is None
        or not isinstance(written.strategy.strategy, AfterWrite)
        or written.facts is None
    ):
        return written.facts, None
    try:
        held = hold_now(lake, table, written.facts.history)
        if held is not None:
            context.log.info(f"{table.key} was written, and is not compacted: {held.sentence}")
            return written.facts, None
        outcome = compact(lake, spark.spark_session, table, owner=f"run {context.run.run_id}")
    except (Transient, Refused) as error:
        context.log.warning(
            f"{table.key} was written, and not compacted: {type(error).__name__}: {error}"
        )
        return written.facts, None
    except Exception as error:
        return lake.facts(table.key), error  # the compaction may have been undone
    context.log.info(f"{table.key} after its write: {outcome.plan.sentence}")
    if outcome.version_after is not None:
        outcome = _measured(context, lake, table, outcome)
        context.log_event(
            dg.AssetMaterialization(compaction_key(table), metadata=compaction_metadata(outcome))
        )
    return outcome.facts, None


def report_table(
    context: dg.AssetExecutionContext, table: Table, lake: Lake, facts: TableFacts
) -> None:
    """The table as the compaction left it: an observation and the checks. What is in their way is told, and fails nothing.

    A failure would have Dagster try again, and the next compaction, with nothing left to do, would take the place of this one's account.
    """
    try:
        assessed = assess(lake, table, facts)
        context.log_event(
            dg.AssetObservation(table_key(table), metadata=table_metadata(table, assessed))
        )
        report_checks(context, table, lake, assessed)
    except LakehouseError as error:
        context.log.warning(
            f"{table.key} was compacted; what it is like now could not be told: {type(error).__name__}: {error}"
        )


def compaction_sensor(
    tables: Sequence[Table],
    lake: Lake,
    *,
    name: str = "compaction_sensor",
    budget: TimeBudget | None = None,
) -> dg.SensorDefinition:
    """Requests the compactions that are due, best first, and says of every table, with numbers, why or why not.

    It reads the newest event of each table, the runs about them, and what the journal holds against any: one listing, and what is new
    since the last tick; no log, no Spark. What has to outlast a tick (who waits since when, the ranking reported last) is in its cursor.
    A compaction whose process died is closed first, and slots that ended runs still hold are freed: both would block
    their table for ever. A compaction that waits for the pool of its table takes no slot from the other tables.
    """
    budget = budget or TimeBudget()
    bounded = lake.within(budget)
    records = JournalCache(bounded.store, sweep_ms=SWEEP_MS if lake.settings.on_s3 else 0)
    compactions = [compaction_key(table) for table in tables]

    @dg.sensor(
        name=name,
        target=dg.AssetSelection.assets(*compactions),
        default_status=dg.DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=lake.settings.compaction_tick_seconds,
        description="Compacts the due tables, the highest benefit for its cost first.",
    )
    def weigh(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        budget.begin()
        now, cursor = now_ms(), read_cursor(context.cursor)
        for run_id in close_lost_runs(context.instance, set(compactions), now_ms=now):
            context.log.warning(f"run {run_id[:8]} was closed: its process is gone")
        for sentence in free_ended_slots(context.instance, tables, now_ms=now):
            context.log.warning(sentence)
        try:
            records.refresh(now)
            journal = Journal(bounded.store, records)
            fleet = weigh_fleet(context.instance, tables, bounded, cursor, journal)
        except Transient as error:
            # What holds a table back is unknown, and unknown starts nothing.
            text = f"the journal cannot be read now, so no compaction is requested: {error}"
            return dg.SensorResult(skip_reason=text, cursor=context.cursor)
        text = describe(fleet.decisions)
        after, events = report_ranking(fleet, cursor, now_ms=now)
        requests = [
            _request(decision, fleet.states[decision.table])
            for decision in fleet.decisions
            if decision.request
        ]
        if requests:
            context.log.info(text)
        return dg.SensorResult(
            run_requests=requests or None,
            skip_reason=None if requests else text,
            cursor=after.as_cursor(),
            asset_events=events,
        )

    return weigh


def compaction_schedules(tables: Sequence[Table], lake: Lake) -> list[dg.ScheduleDefinition]:
    """The schedules of those tables that are compacted by the clock. A tick reads the table's log and journal."""
    strategies = [(table, policy_for(table.layer, table.compaction).strategy) for table in tables]
    return [
        _schedule(table, strategy, lake)
        for table, strategy in strategies
        if isinstance(strategy, Scheduled)
    ]


def _refuse_what_may_not_begin(
    context: dg.AssetExecutionContext, lake: Lake, table: Table, *, anyway: bool
) -> None:
    """A run that is refused before it begins is no try of its table.

    Raises:
        Refused: the pool of its writers lets both commit at once; or, where it is not asked for `anyway`, the table is left alone.
    """
    try:
        for risk in pools_at_risk(context.instance, [table]).values():
            raise Refused(f"compact {table.key}: {risk.sentence}")
        if not anyway:
            refuse_held(lake, table)
            refuse_closed_window(table, context.run.tags, now_ms=now_ms())
    except Refused:
        context.instance.add_run_tags(
            context.run.run_id, {machine_tag(REFUSED): context.run.run_id}
        )
        raise


def _measured(
    context: dg.AssetExecutionContext,
    lake: Lake,
    table: Table,
    outcome: CompactionOutcome,
    spark: LazyPySparkResource | None = None,
) -> CompactionOutcome:
    """The outcome with the table's account and, given a session, a probe.

    A failure here only logs a warning: the compaction itself is done.
    """
    from lakehouse.engine.compaction.read_probe import probe_compaction

    try:
        outcome = with_account(lake, table, outcome)
        if spark is None:
            return outcome
        return replace(outcome, probe=probe_compaction(lake, spark.spark_session, outcome))
    except Exception as error:
        context.log.warning(
            f"{outcome.plan.table} was compacted; what that gained could not be told: {type(error).__name__}: {error}"
        )
        return outcome


def _request(decision: Decision, state: TableState) -> dg.RunRequest:
    key = dg.AssetKey(["compaction", *decision.table.split("/")])
    told = {
        "table": state.table,
        "version": state.version,
        "mergeable_files": state.mergeable_file_count,
    }
    cost = {} if state.estimate_usd is None else {COST_TAG: f"{state.estimate_usd:.6f}"}
    tags = {f"lakehouse/{name}": str(value) for name, value in told.items()} | cost
    return dg.RunRequest(run_key=decision.run_key, asset_selection=[key], tags=tags)


def _schedule(table: Table, strategy: Scheduled, lake: Lake) -> dg.ScheduleDefinition:
    budget = TimeBudget()
    bounded = lake.within(budget)

    @dg.schedule(
        name=f"compaction_of_table_{table.key.replace('/', '_')}",
        cron_schedule=strategy.cron,
        execution_timezone="UTC",
        target=dg.AssetSelection.assets(compaction_key(table)),
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=f"Compacts {table.key} at the times that its declaration says (UTC).",
    )
    def ask(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        budget.begin()
        facts = None
        with suppress(LakehouseError):  # the run reports what is wrong with the log
            facts = bounded.facts(table.key)
        held = hold_now(bounded, table, None if facts is None else facts.history)
        if held is not None:
            return dg.SkipReason(f"{table.key}: {held.sentence}")
        under_way = [
            run.text for run in runs_in_flight(context.instance, [table]) if run.is_compaction
        ]
        if under_way:
            return dg.SkipReason(
                f"{table.key}: {Reason.RUN_IN_FLIGHT.explain(runs='; '.join(under_way)).sentence}"
            )
        # Named once more: a run without a selection is taken for one of every table.
        run_key = f"{table.key} {context.scheduled_execution_time:%Y-%m-%dT%H:%M}"
        return dg.RunRequest(run_key=run_key, asset_selection=[compaction_key(table)])

    return ask
