"""One TTL asset per table whose rows expire. It runs daily, by the clock.

The asset depends on no other asset, because rows expire without any event. Downstream tables do not
follow the deletion, so it is reported as an observation of the table, as a compaction is.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import dagster as dg

from lakehouse.core.declaration.table import Table
from lakehouse.core.ttl.outcome import TtlOutcome
from lakehouse.defs.compaction import report_table
from lakehouse.defs.failures import errors_for_dagster
from lakehouse.defs.keys import pool_of, table_key, ttl_key
from lakehouse.defs.metadata.runs import figures_table
from lakehouse.defs.metadata.table import Metadata
from lakehouse.defs.resources import open_session
from lakehouse.defs.upkeep_times import TTL_CRON
from lakehouse.defs.vacuum import skip_reason
from lakehouse.engine.lake import Lake


class TtlConfig(dg.Config):
    """Options of one run. `anyway`: run even if the table is paused."""

    anyway: bool = False


def ttl_asset(table: Table, lake: Lake, *, resource: str = "spark") -> dg.AssetsDefinition:
    """The asset that deletes a table's expired rows."""
    tick = dg.AutomationCondition.cron_tick_passed(TTL_CRON)

    @dg.asset(
        key=ttl_key(table),
        metadata={"lakehouse/table": dg.MetadataValue.asset(table_key(table))},
        op_tags={"dagster/priority": "-1"},  # after the writes, before the vacuums
        group_name="ttl",
        kinds={"deltalake", "pyspark"},
        pool=pool_of(table),
        output_required=False,
        required_resource_keys={resource},
        automation_condition=tick & ~dg.AutomationCondition.in_progress(),
        description=f"Deletes the expired rows of {table.key}. Downstream tables keep their rows.",
    )
    def ttl(
        context: dg.AssetExecutionContext, config: TtlConfig
    ) -> Iterator[dg.MaterializeResult[Any]]:
        from lakehouse.engine.adoption.find_tables import is_table
        from lakehouse.engine.ttl.run import run

        with errors_for_dagster(context):
            # `is_table` finds a first commit or `_last_checkpoint`. Without both, the log is read.
            if not is_table(lake.store, table.key) and lake.facts(table.key) is None:
                context.log.info(
                    f"ttl run of {table.key}: skipped, because the table has not been written yet"
                )
                return
            reason = "" if config.anyway else skip_reason(context, lake, table, "ttl run")
            if reason:
                context.log.info(reason)
                return
            session = partial(open_session, context, getattr(context.resources, resource))
            outcome = run(lake, session, table, owner=f"run {context.run.run_id}")
        facts = lake.facts(table.key) if outcome.commits else None
        if facts is not None:
            report_table(context, table, lake, facts)
        context.log.info(f"{table.key}: {outcome.plan.sentence}")
        yield dg.MaterializeResult(metadata=_metadata(outcome))

    return ttl


def _metadata(outcome: TtlOutcome) -> Metadata:
    plan = outcome.plan
    metadata: Metadata = {
        "lakehouse/outcome": plan.sentence,
        "lakehouse/reason": plan.reason.name,
        "lakehouse/rows_deleted": outcome.deleted_rows or 0,
        "lakehouse/seconds": round(outcome.seconds, 3),
        "lakehouse/account": figures_table(outcome.figures),
        "lakehouse/ttl": dg.MetadataValue.json(outcome.as_json()),
    }
    if plan.notes:
        metadata["lakehouse/notes"] = "\n".join(plan.notes)
    return metadata
