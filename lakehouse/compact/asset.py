"""One compaction asset per table.

A compaction changes no row. If a compaction materialized its table, Dagster would consider the rows
changed, and would update all downstream tables. So each compaction has its own asset. It reports
the table's new counts as an observation of the table, and the results of the table's checks.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, cast

import dagster as dg

from lakehouse.assets.events import Event, Reporter, reporter_of
from lakehouse.assets.keys import by_clock, compaction_key, table_key, upkeep_options
from lakehouse.assets.metadata import compaction_metadata, table_metadata
from lakehouse.assets.runs import (
    AUTOMATION_TAG,
    asked_by_person,
    errors_for_dagster,
    process_tag,
)
from lakehouse.base.errors import LakehouseError, Refused, Transient
from lakehouse.compact.assess import assess, hold_now, refuse_held
from lakehouse.compact.plan.history import CompactionOutcome
from lakehouse.declare.policies import AfterWrite, Scheduled
from lakehouse.declare.table import Table
from lakehouse.delta.snapshot import TableFacts
from lakehouse.lake.lake import Lake, is_written
from lakehouse.watch.check import check_events
from lakehouse.write.outcome import WriteOutcome

if TYPE_CHECKING:
    from lakehouse.assets.resources import LazyPySparkResource


class CompactionConfig(dg.Config):
    """Options of one run.

    `anyway`: compact even if the table is paused or opted out.
    """

    anyway: bool = False


def compaction_asset(table: Table, lake: Lake, *, resource: str = "spark") -> dg.AssetsDefinition:
    """The asset that compacts a table: by its clock (`Scheduled`), or in runs of the sensor.

    `resource` is the key of the Dagster resource that opens its Spark session.
    """
    strategy = table.compaction_policy.strategy

    @dg.asset(
        **upkeep_options("compaction", table, resource=resource),
        automation_condition=by_clock(strategy.cron) if isinstance(strategy, Scheduled) else None,
        description=f"Merges the small files of {table.key}. Changes no row, so downstream tables"
        " are not updated.",
    )
    def compaction(context: dg.AssetExecutionContext, config: CompactionConfig) -> Iterator[Event]:
        from lakehouse.assets.resources import open_session
        from lakehouse.compact.run import compact

        context.instance.add_run_tags(context.run.run_id, process_tag(context.run.run_id))
        spark = getattr(context.resources, resource)
        with errors_for_dagster(context):
            reason = "" if config.anyway else skip_reason(context, lake, table, "compact")
            if reason:
                context.log.info(f"compaction of {table.key}: skipped, because {reason}")
                return
            # An adopted table that is not there is a failure.
            if not table.adopted and not is_written(lake, table.key):
                context.log.info(
                    f"compaction of {table.key}: skipped, because the table has not been written "
                    "yet"
                )
                return
            try:
                outcome = compact(
                    lake,
                    lambda: open_session(context, spark),
                    table,
                    owner=f"run {context.run.run_id}",
                    by_person=asked_by_person(context.run.tags),
                )
            except Exception:
                # The failure may have opened the breaker, so the checks are reported. An error of
                # this report must not replace the error of the compaction.
                with suppress(Exception):
                    # This run is about to fail, and would lose its events.
                    for event in check_events(reporter_of(context), table, lake):
                        context.instance.report_runless_asset_event(event)
                raise
        context.log.info(f"{table.key}: {outcome.plan.sentence}")
        if outcome.version_after is None:
            for sentence in outcome.sentences:
                context.log.warning(f"{table.key}: {sentence}")
        yield from compaction_events(reporter_of(context), table, lake, outcome)

    return cast("dg.AssetsDefinition", compaction)


def compaction_events(
    reporter: Reporter, table: Table, lake: Lake, outcome: CompactionOutcome
) -> Iterator[Event]:
    """What a compaction reports: the table as it is now, and the compaction itself."""
    yield from table_events(reporter, table, lake, outcome.facts)
    yield dg.MaterializeResult(
        asset_key=compaction_key(table), metadata=compaction_metadata(outcome)
    )


def compact_after_write(
    context: dg.AssetExecutionContext,
    table: Table,
    lake: Lake,
    spark: "LazyPySparkResource",
    write: WriteOutcome,
) -> tuple[TableFacts | None, Exception | None]:
    """Compacts a table after its write, if its strategy says so and there is something to compact.

    Returns the table's facts, and an error that the caller must raise after its reports.

    1. The rows are committed before this function begins, and stay committed if it fails.
    2. The table's lock is taken again while the run still holds the table's pool, so no other run
       can write between the write and the compaction.
    3. The compaction is recorded under its own asset, as if it were a separate run.

    If the table is not compacted now (a hold, `Transient` or `Refused`), the reason is logged. The
    compaction after the next write includes the same files.
    """
    from lakehouse.compact.run import compact

    # A run that wrote no rows compacts, too, because the previous run may have ended before its
    # compaction.
    if not isinstance(table.compaction.strategy, AfterWrite) or write.facts is None:
        return write.facts, None
    try:
        hold = hold_now(lake, table, write.facts)
        if hold is not None:
            context.log.info(f"{table.key} was written, and is not compacted: {hold.sentence}")
            return write.facts, None
        outcome = compact(lake, spark.spark_session, table, owner=f"run {context.run.run_id}")
    except (Transient, Refused) as error:
        context.log.warning(
            f"{table.key} was written, and not compacted: {type(error).__name__}: {error}"
        )
        return write.facts, None
    except Exception as error:
        # The facts are read again, because the compaction may have committed, or have been undone.
        return lake.facts(table.key), error
    context.log.info(f"{table.key} after its write: {outcome.plan.sentence}")
    if outcome.version_after is not None:
        context.log_event(
            dg.AssetMaterialization(compaction_key(table), metadata=compaction_metadata(outcome))
        )
    return outcome.facts, None


def table_events(
    reporter: Reporter, table: Table, lake: Lake, facts: TableFacts
) -> Iterator[Event]:
    """What upkeep that changed a table reports of it: an observation and the checks.

    A `LakehouseError` is only shown. If it failed the run, Dagster would retry the run. The second
    compaction would find nothing to do, and its account would replace the account of the first.
    """
    try:
        assessed = assess(lake, table, facts)
        yield dg.AssetObservation(table_key(table), metadata=table_metadata(table, assessed))
        yield from check_events(reporter, table, lake, assessed)
    except LakehouseError as error:
        reporter.tell(
            f"{table.key} was changed, but its new state could not be reported: "
            f"{type(error).__name__}: {error}"
        )


def skip_reason(context: dg.AssetExecutionContext, lake: Lake, table: Table, command: str) -> str:
    """The reason to skip an automated run of upkeep, or an empty string.

    A table is skipped if it is paused, if its declaration opts out or, for a compaction, if the
    sensor would skip it.

    Raises:
        Refused: the table is paused or opts out, but a person or the sensor requested the run.
    """
    is_automated = AUTOMATION_TAG in context.run.tags
    if is_automated and command == "compact":
        facts = None
        with suppress(LakehouseError):  # if the log cannot be read, the compaction reports why
            facts = lake.facts(table.key)
        hold = hold_now(lake, table, facts)
        return hold.sentence if hold else ""
    try:
        refuse_held(lake, table, command)
    except Refused as refused:
        if is_automated:
            return str(refused)
        raise
    return ""
