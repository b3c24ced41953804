"""One compaction asset per table, and the one sensor that decides which of them run.

A compaction is an asset of its own: it changes no row, and a materialization of the table would say that it did and
set off everything downstream. On the table's own key it leaves an observation with the new counts, and fresh checks.

It depends on no asset: Dagster would call it "Unsynced" after each write, though there is nothing to merge. Its metadata names the table.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import dagster as dg
from dagster_pyspark import LazyPySparkResource

from lakehouse.core.adoption.adopted import Adopted
from lakehouse.core.declaration.compaction_policy import policy_for
from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.table_facts import TableFacts
from lakehouse.core.errors import LakehouseError, Refused
from lakehouse.core.scheduling.circuit_breaker import closed_window
from lakehouse.core.scheduling.ranking import Decision, describe
from lakehouse.core.scheduling.triggers import TableState
from lakehouse.defs.dagster_records import pools_at_risk
from lakehouse.defs.failures import dagster_words
from lakehouse.defs.health import report_checks
from lakehouse.defs.keys import compaction_key, pool_of, table_key
from lakehouse.defs.metadata.table import compaction_metadata, table_metadata
from lakehouse.defs.run_ownership import close_lost_runs, machine_tag, process_tag
from lakehouse.defs.table_assets import tag_session
from lakehouse.defs.upkeep.after_write import measured
from lakehouse.defs.upkeep.fleet_from_events import COST_TAG, REFUSED, read_cursor, weigh_fleet
from lakehouse.defs.upkeep.ranking_asset import report_ranking
from lakehouse.engine.adoption.find import is_table
from lakehouse.engine.clock import now_ms
from lakehouse.engine.compaction.hold_back import refuse_held_back
from lakehouse.engine.journal.journal import JournalCache
from lakehouse.engine.lake import Lake
from lakehouse.engine.spark.sessions import session_id
from lakehouse.engine.table_health import assess

# On S3, how late a record is found that no marker tells of. A folder is listed in each tick, for nothing.
SWEEP_MS = 600_000


class CompactionConfig(dg.Config):
    """What a person may say of one run. `anyway`: also if the table is paused, or its declaration opts out; `probe`: measure its gain."""

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
    def compaction(context: dg.AssetExecutionContext, config: CompactionConfig) -> Iterator[dg.MaterializeResult[Any]]:
        from lakehouse.engine.compaction.run import compact

        context.instance.add_run_tags(context.run.run_id, process_tag(context.run.run_id))
        spark: LazyPySparkResource = getattr(context.resources, resource)
        with dagster_words(context):
            _refuse_what_may_not_begin(context, lake, table, anyway=config.anyway)
            if not isinstance(table.write, Adopted) and not is_table(lake.store, table.key) and lake.facts(table.key) is None:
                context.log.info(f"{table.key}: there is no table yet")
                return
            session = spark.spark_session
            tag_session(context, session_id(session))
            try:
                outcome = compact(lake, session, table, owner=f"run {context.run.run_id}")
            except Exception:
                with suppress(Exception):  # what went wrong is the one to tell; the breaker may be open by it
                    report_checks(context, table, lake, fails=True)
                raise
        if outcome.facts is not None:
            report_table(context, table, lake, outcome.facts)
        outcome = measured(context, lake, table, spark, outcome, asked=config.probe)
        context.log.info(f"{table.key}: {outcome.plan.sentence}")
        yield dg.MaterializeResult(metadata=compaction_metadata(outcome))

    return compaction


def refuse_closed_window(table: Table, tags: Mapping[str, str], *, now_ms: int) -> None:
    """Nothing, if a run with these tags may begin: the window in which the sensor or a schedule asked for it may have closed meanwhile.

    A person's run is not held, nor one that a person starts again: such a run has its parent's tags, and no number of an automatic retry.

    Raises:
        Refused: no window is open.
    """
    started_again = "dagster/parent_run_id" in tags and "dagster/retry_number" not in tags
    if started_again or not tags.keys() & {"dagster/sensor_name", "dagster/schedule_name"}:
        return
    held = closed_window(policy_for(table.layer, table.compaction), now_ms)
    if held is not None:
        raise Refused(f"compact {table.key}: {held.sentence}; accepted: to wait for it, or lakehouse compact {table.key}")


def _refuse_what_may_not_begin(context: dg.AssetExecutionContext, lake: Lake, table: Table, *, anyway: bool) -> None:
    """A run that is refused before it begins is no try of its table.

    Raises:
        Refused: the pool of its writers lets both commit at once; or, where it is not asked for `anyway`, the table is left alone.
    """
    try:
        for risk in pools_at_risk(context.instance, [table]).values():
            raise Refused(f"compact {table.key}: {risk.sentence}")
        if not anyway:
            refuse_held_back(lake, table)
            refuse_closed_window(table, context.run.tags, now_ms=now_ms())
    except Refused:
        context.instance.add_run_tags(context.run.run_id, {machine_tag(REFUSED): context.run.run_id})
        raise


def report_table(context: dg.AssetExecutionContext, table: Table, lake: Lake, facts: TableFacts) -> None:
    """The table as the compaction left it: an observation and the checks. What is in their way is told, and fails nothing.

    A failure would have Dagster try again, and the next compaction, with nothing left to do, would take the place of this one's account.
    """
    try:
        assessed = assess(lake, table, facts)
        context.log_event(dg.AssetObservation(table_key(table), metadata=table_metadata(table, assessed)))
        report_checks(context, table, lake, assessed)
    except LakehouseError as error:
        context.log.warning(f"{table.key} was compacted; what it is like now could not be told: {type(error).__name__}: {error}")


def compaction_sensor(tables: Sequence[Table], lake: Lake, *, name: str = "compaction_sensor") -> dg.SensorDefinition:
    """Requests the compactions that are due, best first, and says of every table, with numbers, why or why not.

    It reads the newest event of each table, the runs about them, and what the journal holds against any: one listing, and what is new
    since the last tick; no log, no Spark. What has to outlast a tick (who waits since when, the ranking reported last) is in its cursor.
    A compaction whose process died is closed first: it would hold its slot and its table for ever.
    """
    records = JournalCache(lake.store, sweep_ms=SWEEP_MS if lake.settings.on_s3 else 0)
    compactions = [compaction_key(table) for table in tables]

    @dg.sensor(
        name=name,
        target=dg.AssetSelection.assets(*compactions),
        default_status=dg.DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=lake.settings.compaction_tick_seconds,
        description="Compacts the due tables, the highest benefit for its cost first.",
    )
    def weigh(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        now, cursor = now_ms(), read_cursor(context.cursor)
        records.refresh(now)
        for run_id in close_lost_runs(context.instance, set(compactions), now_ms=now):
            context.log.warning(f"run {run_id[:8]} was closed: its process is gone")
        fleet = weigh_fleet(context.instance, tables, lake, cursor, records=records, now_ms=now)
        text = describe(fleet.decisions)
        after, events = report_ranking(fleet, cursor, now_ms=now)
        requests = [_request(decision, fleet.states[decision.table]) for decision in fleet.decisions if decision.request]
        if requests:
            context.log.info(text)
        return dg.SensorResult(
            run_requests=requests or None, skip_reason=None if requests else text, cursor=after.as_cursor(), asset_events=events
        )

    return weigh


def _request(decision: Decision, state: TableState) -> dg.RunRequest:
    key = dg.AssetKey(["compaction", *decision.table.split("/")])
    cost = {} if state.estimate_usd is None else {COST_TAG: f"{state.estimate_usd:.6f}"}
    tags = {"lakehouse/table": state.table, "lakehouse/version": str(state.version)}
    mergeable = {"lakehouse/mergeable_files": str(state.mergeable_file_count)}
    return dg.RunRequest(run_key=decision.run_key, asset_selection=[key], tags={**tags, **mergeable, **cost})
