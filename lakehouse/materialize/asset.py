"""One asset per table: its dependencies, its metadata, and the write itself."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import dagster as dg

from lakehouse.assets.dagster_records import tag_as_read_nothing
from lakehouse.assets.keys import landing_key, pool_of, table_key
from lakehouse.assets.metadata import (
    data_version,
    declared_metadata,
    table_metadata,
    write_metadata,
)
from lakehouse.assets.resources import LazyPySparkResource, open_session
from lakehouse.assets.runs import errors_for_dagster
from lakehouse.base.reasons import Reason
from lakehouse.base.text import count_of, printable
from lakehouse.compact.assess import assess
from lakehouse.compact.asset import compact_after_write
from lakehouse.declare.table import Table
from lakehouse.lake.lake import Lake, TableSession
from lakehouse.land.plan.batches import SetAside
from lakehouse.watch.check import hand_on
from lakehouse.write.outcome import WriteOutcome

# A warning names at most this many files that were set aside.
_NAMED = 100
# Source: dagster 1.13, dagster/_core/definitions/data_version.py
_CODE_VERSION = "dagster/code_version"
# The times at which an asset whose run failed is requested again.
_RETRY_CRON = "*/30 * * * *"


def table_asset(table: Table, lake: Lake, tables: Sequence[Table] = ()) -> dg.AssetsDefinition:
    """The asset of a table: a run loads landed files, or updates the table from its inputs.

    After the write, the run compacts the table if the table's strategy requires it. A run that
    changes no row is recorded with the previous data version, so nothing downstream is updated. If
    no table exists yet because nothing has landed, a run records nothing. Dagster shows that a
    transform's code has changed, but the change starts no run.
    """
    deps = [table_key(source) for source in table.inputs]
    if table.source:
        deps = [landing_key(table.source)]
    freshness_policy = None
    if table.fresh_within_hours is not None:
        window = timedelta(hours=table.fresh_within_hours)
        freshness_policy = dg.FreshnessPolicy.time_window(fail_window=window)

    @dg.asset(
        key=table_key(table),
        deps=deps,
        group_name=table.layer,
        kinds={"deltalake", "pyspark", table.layer},
        pool=pool_of(table),
        description=table.description or None,
        freshness_policy=freshness_policy,
        automation_condition=follows_rows() if table.inputs else None,
        code_version=table.transform_code,
        metadata=declared_metadata(table, lake),
        output_required=False,
    )
    def write(
        context: dg.AssetExecutionContext, spark: LazyPySparkResource
    ) -> Iterator[dg.MaterializeResult[Any]]:
        yield from _materialize(context, spark, table, lake, tables)

    return write


def _materialize(
    context: dg.AssetExecutionContext,
    spark: LazyPySparkResource,
    table: Table,
    lake: Lake,
    tables: Sequence[Table],
) -> Iterator[dg.MaterializeResult[Any]]:
    """Writes the table in a run of its asset, and compacts it if its strategy says so."""
    from lakehouse.evolve.run import apply_policy
    from lakehouse.materialize.run import write_table
    from lakehouse.query.run import name_tables

    with errors_for_dagster(context):
        session = open_session(context, spark)
        table_session = TableSession(lake=lake, spark=session, table=table)
        evolution = "; ".join(apply_policy(table_session, tables, context.log.info))
        outcome = write_table(lake, session, table, tell=context.log.info)
        name_tables(lake, session, [table])
        facts, compaction_error = compact_after_write(context, table, lake, spark, outcome)
    context.log.info(f"{table.key}: {outcome.sentence}")
    if outcome.set_aside:
        context.log.warning(set_aside_text(table, outcome.set_aside))
    if outcome.reason is Reason.INPUTS_UNCHANGED:
        tag_as_read_nothing(context.instance, context.run.run_id, table)
    if facts is not None:
        assessed = assess(lake, table, facts)
        hand_on(context.run.run_id, table, assessed)
        metadata = {**table_metadata(table, assessed), **write_metadata(outcome)}
        if evolution:
            metadata["lakehouse/evolution"] = evolution
        yield dg.MaterializeResult(
            metadata=metadata,
            data_version=dg.DataVersion(data_version(facts)),
            tags=code_tags(outcome),
        )
    # The run fails only now, after the write was recorded.
    if compaction_error is not None:
        with errors_for_dagster(context):
            raise compaction_error


def follows_rows() -> dg.AutomationCondition[dg.AssetKey | dg.AssetCheckKey]:
    """Requests a run after each change of an input's rows, and twice an hour after a failed run.

    Dagster's `eager` misses a change that happens while the table is written, because the end of
    that run counts as handling the change. Here, only a new request counts. If the change happens
    in the same tick as a request, it causes another request one tick later; at worst, that run
    finds nothing new. Source: dagster 1.13, automation_condition.py, `eager` and
    `since_last_handled`.
    """
    condition = dg.AutomationCondition
    changed = (
        condition.newly_updated()
        & condition.data_version_changed()
        & ~condition.executed_with_root_target()
    )
    any_rows_changed = condition.any_deps_match(changed | condition.will_be_requested())
    # `(~any_rows_changed).newly_true()` requests the second run, one tick after a change.
    failed = condition.cron_tick_passed(_RETRY_CRON) & condition.execution_failed()
    trigger = (
        condition.newly_missing() | any_rows_changed | (~any_rows_changed).newly_true() | failed
    )
    is_free = (
        ~condition.any_deps_missing() & ~condition.any_deps_in_progress() & ~condition.in_progress()
    )
    handled = condition.newly_requested() | condition.initial_evaluation()
    return (condition.in_latest_time_window() & trigger.since(handled) & is_free).with_label(
        "follows_rows"
    )


def code_tags(outcome: WriteOutcome) -> dict[str, str]:
    """Tags that mark the asset's code as changed, as long as it has rows that other code computed.

    Without these tags, Dagster would record the present code for each run, even if the run computed
    no row.
    """
    since = outcome.code_changed_since
    return {} if since is None else {_CODE_VERSION: f"other code up to version {since}"}


def set_aside_text(table: Table, files: Sequence[SetAside]) -> str:
    """The landed files that were not read, each with its reason; a long list is cut."""
    lines = [f"{table.key}: set aside {count_of(len(files), 'landed file')}"]
    lines += [
        printable(f"{file.name} ({file.size_bytes} bytes): {file.why}") for file in files[:_NAMED]
    ]
    if len(files) > _NAMED:
        lines.append(
            f"and {len(files) - _NAMED} more; all are named in the manifests below "
            f"_lakehouse/ingest/{table.key}"
        )
    return "\n".join(lines)
