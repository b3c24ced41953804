"""One archive asset per table that declares an archive. It runs daily, by the clock.

The asset depends on no other asset, because partitions become old without any event. A run moves
old partitions to the archive, and deletes expired partitions from the archive. Downstream tables
keep the archived rows. So after a move, the table is reported as an observation, which does not
update them.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import dagster as dg

from lakehouse.core.archive.expire import ExpireOutcome
from lakehouse.core.archive.outcome import ArchiveOutcome
from lakehouse.core.declaration.table import Table
from lakehouse.defs.compaction import report_table
from lakehouse.defs.failures import errors_for_dagster
from lakehouse.defs.keys import archive_key, pool_of, table_key
from lakehouse.defs.metadata.runs import figures_table
from lakehouse.defs.metadata.table import Metadata
from lakehouse.defs.resources import open_session
from lakehouse.defs.upkeep_times import ARCHIVE_CRON
from lakehouse.defs.vacuum import skip_reason
from lakehouse.engine.lake import Lake, TableSession


class ArchiveConfig(dg.Config):
    """Options of one run.

    `anyway`: run even if the table is paused. `only`: run only this step; empty runs both steps:
    moving old partitions to the archive, and deleting expired ones from it.
    """

    anyway: bool = False
    only: Literal["", "archive", "expire"] = ""


def archive_asset(
    table: Table, lake: Lake, tables: Sequence[Table] = (), *, resource: str = "spark"
) -> dg.AssetsDefinition:
    """The asset that moves a table's old partitions to its archive, and deletes expired ones.

    `tables` are all tables of the lake, or of one call of `maintain`.
    """
    condition = dg.AutomationCondition

    @dg.asset(
        key=archive_key(table),
        metadata={"lakehouse/table": dg.MetadataValue.asset(table_key(table))},
        op_tags={"dagster/priority": "-1"},  # after the writes, before the vacuums
        group_name="archive",
        kinds={"deltalake", "pyspark"},
        pool=pool_of(table),
        output_required=False,
        required_resource_keys={resource},
        automation_condition=condition.cron_tick_passed(ARCHIVE_CRON) & ~condition.in_progress(),
        description=f"Moves old partitions of {table.key} to its archive, and deletes expired "
        "partitions from the archive. Downstream tables keep their rows.",
    )
    def archive(
        context: dg.AssetExecutionContext, config: ArchiveConfig
    ) -> Iterator[dg.MaterializeResult[Any]]:
        from lakehouse.engine.adoption.find_tables import is_table
        from lakehouse.engine.archive.expire import expire
        from lakehouse.engine.archive.run import run_archive

        owner = f"run {context.run.run_id}"
        command = "archive expire" if config.only == "expire" else "archive run"
        moved: ArchiveOutcome | None = None
        expired: ExpireOutcome | None = None
        with errors_for_dagster(context):
            if not is_table(lake.store, table.key) and lake.facts(table.key) is None:
                context.log.info(
                    f"{command} of {table.key}: skipped, because the table has not been written yet"
                )
                return
            reason = "" if config.anyway else skip_reason(context, lake, table, command)
            if reason:
                context.log.info(reason)
                return
            if config.only != "expire":
                spark = open_session(context, getattr(context.resources, resource))
                session = TableSession(lake=lake, spark=spark, table=table)
                moved = run_archive(session, tables, owner=owner, tell=context.log.info)
                context.log.info(f"{table.key}: {moved.plan.sentence}")
            if config.only != "archive":
                expired = expire(lake, table, owner=owner)
                if expired is not None and expired.failed:
                    context.log.warning(f"{table.key}: {expired.sentence}")
        if moved is not None and moved.version_after is not None:
            facts = lake.facts(table.key)
            if facts is not None:
                report_table(context, table, lake, facts)
        yield dg.MaterializeResult(metadata=_metadata(moved, expired))

    return archive


def _metadata(moved: ArchiveOutcome | None, expired: ExpireOutcome | None) -> Metadata:
    metadata: Metadata = {}
    sentences = list[str]()
    if moved is not None:
        plan = moved.plan
        document = moved.as_json()
        sentences.append(plan.sentence)
        metadata |= {
            "lakehouse/reason": plan.reason.name,
            "lakehouse/rows_moved": document["actual_rows"],
            "lakehouse/seconds": round(moved.seconds, 3),
            "lakehouse/account": figures_table(moved.figures),
            "lakehouse/archive": dg.MetadataValue.json(document),
        }
        if plan.notes:
            metadata["lakehouse/notes"] = "\n".join(plan.notes)
    if expired is not None:
        sentences.append(expired.sentence)
        metadata |= {
            "lakehouse/files_expired": expired.deleted_files,
            "lakehouse/expire": dg.MetadataValue.json(expired.as_json()),
        }
    return {"lakehouse/outcome": "; ".join(sentences), **metadata}
