"""`lakehouse compact`: compacts one table through Dagster."""

from collections.abc import Mapping
from typing import Any

import click

from lakehouse.cli.commands.plan import plan_document, print_plans
from lakehouse.cli.context import complete_table, not_written, open_table
from lakehouse.cli.output import json_option, print_figures, show, write_json
from lakehouse.cli.spark_server import driver_on_demand
from lakehouse.core.adoption.maintained import is_maintained
from lakehouse.core.compaction.engine_choice import choose_engine
from lakehouse.core.declaration.adopted import Adopted
from lakehouse.core.declaration.table import Table
from lakehouse.core.errors import Refused
from lakehouse.engine.compaction import run
from lakehouse.engine.lake import Lake
from lakehouse.engine.read_each_table import Found


@click.command("compact", epilog="Example: lakehouse compact silver/flights --dry-run")
@click.argument("table", shell_complete=complete_table)
@click.option("--dry-run", is_flag=True, help="Show only the plan. Does not start a JVM.")
@click.option("--anyway", is_flag=True, help="Also compact a table that is paused or opts out.")
@click.option(
    "--probe",
    is_flag=True,
    help="After the compaction, time scans of the versions before and after it, for up to 30 s, and"
    " record the times.",
)
@json_option
def compact_command(table: str, dry_run: bool, anyway: bool, probe: bool, as_json: bool) -> None:
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
    _refuse_unserialized_commit(context.lake, declared_table)
    tables = context.tables.values()
    with open_recorder(settings, tables) as recorder, driver_on_demand(settings):
        config = {"anyway": anyway, "probe": probe}
        [compaction] = recorder.materialize([f"compaction/{table}"], config=config)
    if compaction.state == "skipped":
        raise not_written(declared_table, operation=f"compact {table}")
    document: Mapping[str, Any] = compaction.outcome()["lakehouse/compaction"]
    if as_json:
        write_json(document)
    else:
        _print(document)


def _refuse_unserialized_commit(lake: Lake, table: Table) -> None:
    """Refuses Spark's compaction of a table that a `maintain` call declares with `writers="none"`.

    `writers="none"` relies on a pool of the project's Dagster instance, which makes the asset that
    writes the table and a compaction wait for each other. This process cannot take a slot of that
    pool. A compaction by deltalake needs none, because its commits are conditional.
    """
    write = table.write
    if not (is_maintained(table) and isinstance(write, Adopted) and write.writers == "none"):
        return
    facts = lake.facts(table.key)
    if facts is None or choose_engine(table, facts.snapshot).engine == "deltalake":
        return
    raise Refused(
        f"compact {table.key}: Spark could overwrite a commit of another writer, because this "
        "command cannot take the pool that serializes the writers in their Dagster project. "
        f"Materialize the asset compaction/{table.key} on the project's page"
    )


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
