"""One schedule per table whose strategy is `Scheduled`: at those times it asks for the table's compaction, whatever the counts are."""

from collections.abc import Sequence

import dagster as dg

from lakehouse.core.policy import policy_for
from lakehouse.core.reason import Reason
from lakehouse.core.strategy import Scheduled
from lakehouse.core.table import Table
from lakehouse.defs.instance import runs_in_flight
from lakehouse.defs.keys import compaction_key, pool_of


def compaction_schedules(tables: Sequence[Table]) -> list[dg.ScheduleDefinition]:
    """The schedules of those tables that are compacted by the clock; one that is not in automatic mode has none."""
    policies = {table.key: policy_for(table.layer, table.compaction) for table in tables}
    return [
        _schedule(table, strategy)
        for table in tables
        if isinstance(strategy := policies[table.key].strategy, Scheduled) and policies[table.key].mode == "automatic"
    ]


def _schedule(table: Table, strategy: Scheduled) -> dg.ScheduleDefinition:
    @dg.schedule(
        name=f"compaction_of_{pool_of(table)}",
        cron_schedule=strategy.cron,
        execution_timezone="UTC",
        target=dg.AssetSelection.assets(compaction_key(table)),
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=f"Compacts {table.key} at the times that its declaration says (UTC).",
    )
    def ask(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        under_way = [run.name for run in runs_in_flight(context.instance, [table]) if run.is_compaction]
        if under_way:
            return dg.SkipReason(f"{table.key}: {Reason.RUN_IN_FLIGHT.say(runs=', '.join(under_way))}")
        # Named once more: a run without a selection is taken for one of every table.
        run_key = f"{table.key} {context.scheduled_execution_time:%Y-%m-%dT%H:%M}"
        return dg.RunRequest(run_key=run_key, asset_selection=[compaction_key(table)])

    return ask
