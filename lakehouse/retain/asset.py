"""The assets `archive/…`, `ttl/…` and `tiers/<layer>/<name>`, which run daily by the clock.

They depend on no other asset, because rows become old without any event. Downstream tables do not
follow, so a change is reported as an observation of the table, as a compaction is.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import dagster as dg

from lakehouse.assets.events import Event, Reporter, reporter_of
from lakehouse.assets.keys import (
    ARCHIVE_CRON,
    NIGHTLY_CRON,
    TTL_CRON,
    LoadLake,
    by_clock,
    upkeep_key,
    upkeep_options,
)
from lakehouse.assets.metadata import operation_metadata
from lakehouse.assets.runs import errors_for_dagster
from lakehouse.compact.asset import skip_reason, table_events
from lakehouse.declare.table import Table
from lakehouse.lake.lake import Lake

if TYPE_CHECKING:
    from lakehouse.retain.run.archive import RetentionOutcome


def retention_assets(
    tables: Sequence[Table], lake: Lake, load_lake: LoadLake, *, resource: str = "spark"
) -> Iterator[dg.AssetsDefinition]:
    """The assets of all retention that these tables declare. `load_lake` is called in a run."""
    for table in tables:
        if table.archive is not None:
            yield retention_asset("archive", table, lake, resource=resource)
        if table.ttl is not None:
            yield retention_asset("ttl", table, lake, resource=resource)
        if table.vacuum.tiers and lake.on_s3(table.key):
            yield tiers_asset(table, load_lake)


class RetentionConfig(dg.Config):
    """Options of one run.

    `anyway`: run even if the table is paused. `replace`: partitions (`COLUMN=VALUE,…`) whose rows
    replace those in the archive.
    """

    anyway: bool = False
    replace: list[str] = []  # noqa: RUF012  # a field of Dagster's config


def retention_asset(
    operation: str,
    table: Table,
    lake: Lake,
    *,
    resource: str = "spark",
) -> dg.AssetsDefinition:
    """The asset of an `operation`: `archive` or `ttl`."""
    crons = {"archive": ARCHIVE_CRON, "ttl": TTL_CRON}
    descriptions = {
        "archive": f"Moves old partitions of {table.key} to its archive, and deletes expired"
        " partitions from the archive.",
        "ttl": f"Deletes the expired rows of {table.key}.",
    }

    @dg.asset(
        description=f"{descriptions[operation]} Downstream tables keep their rows.",
        automation_condition=by_clock(crons[operation]),
        **upkeep_options(operation, table, resource=resource),
    )
    def retention(context: dg.AssetExecutionContext, config: RetentionConfig) -> Iterator[Event]:
        from lakehouse.assets.resources import open_session
        from lakehouse.lake.lake import is_written
        from lakehouse.retain.plan.archive import parsed_values
        from lakehouse.retain.run.archive import run_archive
        from lakehouse.retain.run.ttl import run_ttl

        session = partial(open_session, context, getattr(context.resources, resource))
        owner = f"run {context.run.run_id}"
        with errors_for_dagster(context):
            if not is_written(lake, table.key):
                context.log.info(f"{operation} of {table.key}: skipped, there is no table yet")
                return
            reason = "" if config.anyway else skip_reason(context, lake, table, operation)
            if reason:
                context.log.info(reason)
                return
            if operation == "archive":
                replace = [parsed_values(text) for text in config.replace]
                outcome = run_archive(lake, table, session, replace=replace, owner=owner)
            else:
                outcome = run_ttl(lake, table, session, owner=owner)
        context.log.info(f"{table.key}: {outcome.plan.sentence}")
        yield from retention_events(reporter_of(context), table, lake, operation, outcome)

    return cast("dg.AssetsDefinition", retention)


def tiers_asset(table: Table, load_lake: LoadLake) -> dg.AssetsDefinition:
    """The asset that tags the removed files of a table on S3."""

    @dg.asset(
        **{**upkeep_options("tiers", table), "required_resource_keys": set()},
        automation_condition=by_clock(NIGHTLY_CRON),
        description=f"Tags the removed files that {table.key} keeps for more than a month. A "
        "lifecycle rule of the bucket moves them to cheaper storage classes.",
    )
    def tiers(context: dg.AssetExecutionContext) -> dg.MaterializeResult[Any] | None:
        from lakehouse.retain.run.tiers import run as run_tiers
        from lakehouse.vacuum.facts import LakeFacts

        with errors_for_dagster(context):
            lake, declared = load_lake()
            plan = run_tiers(LakeFacts(lake, declared), table)
        if plan is None:
            context.log.info(f"{table.key} has not been written yet")
            return None
        context.log.info(f"{table.key}: {plan.sentence}")
        metadata = {
            "lakehouse/tagged": len(plan.tag),
            "lakehouse/untagged": len(plan.untag),
            "lakehouse/size_bytes": plan.bytes,
        }
        return dg.MaterializeResult(metadata=metadata)

    return cast("dg.AssetsDefinition", tiers)


def retention_events(
    reporter: Reporter, table: Table, lake: Lake, operation: str, outcome: "RetentionOutcome"
) -> Iterator[Event]:
    """What an archive run or a TTL run reports: the table if it changed, and the run itself."""
    facts = lake.facts(table.key) if outcome.version_after is not None else None
    if facts is not None:
        yield from table_events(reporter, table, lake, facts)
    yield dg.MaterializeResult(
        asset_key=upkeep_key(operation, table), metadata=operation_metadata(operation, outcome)
    )
