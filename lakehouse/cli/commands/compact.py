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
from lakehouse.engine.each_table import Found
from lakehouse.engine.lake import Lake


@click.command("compact", epilog="Example: lakehouse compact silver/flights --dry-run")
@click.argument("table", shell_complete=complete_table)
@click.option("--dry-run", is_flag=True, help="Show the plan only; starts no JVM.")
@click.option("--anyway", is_flag=True, help="Also compact a table that is paused or opts out.")
@click.option(
    "--probe",
    is_flag=True,
    help="Time a scan before and after the compaction, for up to 30 s, and record the durations.",
)
@json_option
def compact_command(table: str, dry_run: bool, anyway: bool, probe: bool, as_json: bool) -> None:
    """Merge the small files of TABLE through Dagster, and show predicted and actual figures.

    A table that is paused, or whose declaration opts out, is refused without --anyway. If nothing
    has to be merged, the table is not changed, and the reason is shown. No rows change, so
    downstream tables are not updated.
    """
    opened, wanted = open_table(table)
    table = wanted.key
    if dry_run:
        plan = run.plan(opened.lake, wanted)
        if plan is None:
            raise not_written(table, operation=f"compact {table}")
        reading = Found(table=wanted, value=plan)
        write_json(plan_document(reading)) if as_json else print_plans([reading], verbose=True)
        return
    from lakehouse.cli.dagster_runs import open_recorder

    settings = opened.lake.settings
    _refuse_pool_of_its_project(opened.lake, wanted)
    tables = opened.tables.values()
    with open_recorder(settings, tables) as recorder, driver_on_demand(settings):
        config = {"anyway": anyway, "probe": probe}
        [done] = recorder.materialize([f"compaction/{table}"], config=config)
    if done.state == "skipped":
        raise not_written(table, operation=f"compact {table}")
    document: Mapping[str, Any] = done.outcome()["lakehouse/compaction"]
    write_json(document) if as_json else _print(document)


def _refuse_pool_of_its_project(lake: Lake, table: Table) -> None:
    """Refuses a Spark commit if only a pool of another Dagster instance serializes the writers."""
    write = table.write
    if not (is_maintained(table) and isinstance(write, Adopted) and write.writers == "none"):
        return
    facts = lake.facts(table.key)
    if facts is None or choose_engine(table, facts.snapshot).engine == "deltalake":
        return
    raise Refused(
        f"compact {table.key}: Spark would commit while other writers may commit, too, since this "
        "command cannot take the pool for which they wait in their Dagster project. Materialize "
        f"the asset compaction/{table.key} on the project's page"
    )


def _print(document: Mapping[str, Any]) -> None:
    if document["version_after"] is None:
        done = "the plan" if document["files_removed"] else "nothing to do"
        show(
            f"{document['table']}: {done} at version {document['version']}: {document['sentence']}"
        )
        for sentence in document["sentences"]:
            show(sentence)
        return
    versions = f"version {document['version']} -> {document['version_after']}"
    show(f"{document['table']}: {versions}, {document['reason']}: {document['sentence']}")
    print_figures(document)
    for sentence in document["sentences"]:
        show(sentence)
