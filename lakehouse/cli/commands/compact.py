"""`lakehouse compact`: compacts one table through Dagster."""

from collections.abc import Mapping
from typing import Any

import click

from lakehouse.cli.commands.plan import print_plans
from lakehouse.cli.context import complete_table, not_written, open_table
from lakehouse.cli.output import json_option, print_figures, show, write_json
from lakehouse.cli.spark_server import driver_on_demand
from lakehouse.engine.compaction import run
from lakehouse.engine.read_each_table import Found
from lakehouse.engine.table_documents import plan_document


@click.command("compact", epilog="Example: lakehouse compact silver/flights --dry-run")
@click.argument("table", shell_complete=complete_table)
@click.option("--dry-run", is_flag=True, help="Show only the plan. Does not start a JVM.")
@click.option("--anyway", is_flag=True, help="Also compact a table that is paused or opts out.")
@json_option
def compact_command(table: str, dry_run: bool, anyway: bool, as_json: bool) -> None:
    """Merge the small files of TABLE through Dagster, and show predicted and actual figures.

    A table that is paused, or whose declaration opts out, is refused without --anyway. If nothing
    has to be merged, the table is not changed, and the reason is shown. A compaction changes no
    rows, so downstream tables are not updated.
    """
    context, declared_table = open_table(table)
    table = declared_table.key
    if dry_run:
        plan = run.plan(context.lake, declared_table)
        if plan is None:
            raise not_written(declared_table, operation=f"compact {table}")
        reading = Found(table=declared_table, value=plan)
        if as_json:
            write_json(plan_document(reading))
        else:
            print_plans([reading], verbose=True)
        return
    from lakehouse.cli.dagster_runs import open_recorder

    settings = context.lake.settings
    tables = context.tables.values()
    with open_recorder(settings, tables) as recorder, driver_on_demand(settings):
        config = {"anyway": anyway}
        [compaction] = recorder.materialize([f"compaction/{table}"], config=config)
    if compaction.state == "skipped":
        raise not_written(declared_table, operation=f"compact {table}")
    document: Mapping[str, Any] = compaction.outcome()["lakehouse/compaction"]
    if as_json:
        write_json(document)
    else:
        _print(document)


def _print(document: Mapping[str, Any]) -> None:
    if document["version_after"] is None:
        # No commit was made, even if files were planned, for example after another writer's commit.
        result = "the plan" if document["files_removed"] else "nothing to do"
        version = document["version"]
        show(f"{document['table']}: {result} at version {version}: {document['sentence']}")
        for sentence in document["sentences"]:
            show(sentence)
        return
    versions = f"version {document['version']} -> {document['version_after']}"
    show(f"{document['table']}: {versions}, {document['reason']}: {document['sentence']}")
    print_figures(document)
    for sentence in document["sentences"]:
        show(sentence)
