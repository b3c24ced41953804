"""`lakehouse rebuild`: writes all rows of a table again, in one commit."""

from typing import cast

import click

from lakehouse.cli.context import LakeContext, complete_table, open_table
from lakehouse.cli.output import json_option, show, tell, write_json
from lakehouse.cli.spark_server import driver_for_command
from lakehouse.core.declaration.table import Table
from lakehouse.core.evolution.rebuild import RebuildOutcome, RebuildPlan, RebuildSource
from lakehouse.engine.evolution.planned_rebuild import declared_request
from lakehouse.engine.evolution.rebuild import plan_rebuild, run_rebuild
from lakehouse.engine.lake import TableSession
from lakehouse.engine.spark.open_session import connect


@click.command("rebuild", epilog="Example: lakehouse rebuild silver/flights --dry-run")
@click.argument("table", shell_complete=complete_table)
@click.option("--dry-run", is_flag=True, help="Show the plan only.")
@click.option(
    "--from",
    "source",
    type=click.Choice(("rows", "inputs")),
    help="rows: read TABLE's own rows; the default, and the only choice, for a table loaded from"
    " landed files. inputs: read the inputs of TABLE; the default for any other table.",
)
@json_option
def rebuild_command(table: str, dry_run: bool, source: str | None, as_json: bool) -> None:
    """Write all rows of TABLE again, in one commit, after the new rows are verified.

    Afterwards, TABLE has its declared columns and partitions. With --from rows, the rows stay the
    same, so downstream tables have no new rows to read. With --from inputs, all rows are computed
    again; use it if the keys, the write mode or the code have changed. TABLE keeps its history and
    its record of loaded batches.
    """
    context, declared_table = open_table(table)
    table = declared_table.key
    settings = context.lake.settings
    with driver_for_command(settings):
        if dry_run:
            session = TableSession(lake=context.lake, spark=connect(settings), table=declared_table)
            request = declared_request(session, cast("RebuildSource | None", source))
            plan = plan_rebuild(session, request, context.tables.values())
            if as_json:
                write_json({"table": table, "plan": plan.as_json()})
            else:
                _print(plan.sentence, plan)
            return
        outcome = rebuild_table(context, declared_table, cast("RebuildSource | None", source))
    if as_json:
        write_json(outcome.as_json())
        return
    _print(outcome.sentence, outcome.plan)


def rebuild_table(
    context: LakeContext, table: Table, source: "RebuildSource | None"
) -> RebuildOutcome:
    """Rebuilds a table, and reports it on the table's page in Dagster."""
    session = TableSession(lake=context.lake, spark=connect(context.lake.settings), table=table)
    request = declared_request(session, source)
    outcome = run_rebuild(session, request, context.tables.values(), tell=tell)
    report_to_dagster(context, table, outcome)
    return outcome


def _print(sentence: str, plan: RebuildPlan) -> None:
    """Prints what is or would be done, and its effect on each downstream table."""
    show(f"{plan.table}: {sentence}")
    for effect in plan.readers:
        show(effect)


def report_to_dagster(context: LakeContext, table: Table, outcome: RebuildOutcome) -> None:
    """Reports the rebuild to Dagster, on the table's page."""
    from lakehouse.cli.dagster_runs import report_change

    has_new_rows = outcome.plan.rows != "same"
    report_change(context.lake, table, "rebuilt", outcome.sentence, has_new_rows=has_new_rows)
