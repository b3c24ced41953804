"""What runs by the clock, or follows its conditions.

One schedule per table whose strategy is `Scheduled`: at those times it asks for the table's compaction, whatever the counts are.
"""

import contextlib
from collections.abc import Sequence

import dagster as dg

from lakehouse.core.declaration.compaction_policy import policy_for
from lakehouse.core.declaration.strategies import Scheduled
from lakehouse.core.declaration.table import Table
from lakehouse.core.errors import LakehouseError
from lakehouse.core.reasons import Reason
from lakehouse.defs.dagster_records import runs_in_flight
from lakehouse.defs.keys import compaction_key
from lakehouse.engine.compaction.hold_back import hold_back_now
from lakehouse.engine.lake import Lake


def compaction_schedules(tables: Sequence[Table], lake: Lake) -> list[dg.ScheduleDefinition]:
    """The schedules of those tables that are compacted by the clock. A tick reads the table's log and journal."""
    strategies = [(table, policy_for(table.layer, table.compaction).strategy) for table in tables]
    return [_schedule(table, strategy, lake) for table, strategy in strategies if isinstance(strategy, Scheduled)]


def automation_sensor(keys: Sequence[dg.AssetKey], *, name: str = "automation_sensor") -> dg.AutomationConditionSensorDefinition:
    """Has these assets follow their conditions; without it, Dagster's own stands still until a person turns it on."""
    return dg.AutomationConditionSensorDefinition(
        name=name,
        target=dg.AssetSelection.assets(*keys),
        default_status=dg.DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=10,
    )


def _schedule(table: Table, strategy: Scheduled, lake: Lake) -> dg.ScheduleDefinition:
    @dg.schedule(
        name=f"compaction_of_table_{table.key.replace('/', '_')}",
        cron_schedule=strategy.cron,
        execution_timezone="UTC",
        target=dg.AssetSelection.assets(compaction_key(table)),
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=f"Compacts {table.key} at the times that its declaration says (UTC).",
    )
    def ask(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        facts = None
        with contextlib.suppress(LakehouseError):  # the run will tell what is wrong with the log
            facts = lake.facts(table.key)
        held = hold_back_now(lake, table, None if facts is None else facts.history)
        if held is not None:
            return dg.SkipReason(f"{table.key}: {held.sentence}")
        under_way = [run.name for run in runs_in_flight(context.instance, [table]) if run.is_compaction]
        if under_way:
            return dg.SkipReason(f"{table.key}: {Reason.RUN_IN_FLIGHT.explain(runs=', '.join(under_way)).sentence}")
        # Named once more: a run without a selection is taken for one of every table.
        run_key = f"{table.key} {context.scheduled_execution_time:%Y-%m-%dT%H:%M}"
        return dg.RunRequest(run_key=run_key, asset_selection=[compaction_key(table)])

    return ask
