"""`lakehouse ttl`: shows which rows of a table have expired, and deletes them."""

from collections.abc import Mapping
from typing import Any

import click

from lakehouse.cli.context import complete_table, not_written, open_table
from lakehouse.cli.output import (
    bytes_text,
    count_text,
    json_option,
    print_figures,
    print_grid,
    show,
    write_json,
)
from lakehouse.cli.spark_server import driver_for_command
from lakehouse.engine.ttl import run as ttl_run


@click.group("ttl", epilog="Example: lakehouse ttl plan bronze/flight_events")
def ttl_command() -> None:
    """Delete expired rows of a table.

    A table declares when its rows expire: Table(ttl=Ttl(column="event_time", days=365)).
    """


@ttl_command.command("plan", epilog="Example: lakehouse ttl plan bronze/flight_events --json")
@click.argument("table", shell_complete=complete_table)
@json_option
def plan_command(table: str, as_json: bool) -> None:
    """Show which rows of TABLE would be deleted now, in which steps, and why.

    Nothing is changed, and no JVM starts.
    """
    context, declared_table = open_table(table)
    table = declared_table.key
    plan = ttl_run.plan(context.lake, declared_table)
    if plan is None:
        raise not_written(declared_table, operation=f"TTL of {table}")
    document = plan.as_json()
    if as_json:
        write_json(document)
    else:
        _print(document)


@ttl_command.command("run", epilog="Example: lakehouse ttl run bronze/flight_events")
@click.argument("table", shell_complete=complete_table)
@click.option("--anyway", is_flag=True, help="Also delete rows of a table that is paused.")
@json_option
def run_command(table: str, anyway: bool, as_json: bool) -> None:
    """Delete the expired rows of TABLE, through Dagster.

    Downstream tables keep their rows, except tables that read all rows of TABLE in each run. A
    later vacuum deletes the files that held the rows.
    """
    from lakehouse.cli.dagster_runs import open_recorder

    context, declared_table = open_table(table)
    table = declared_table.key
    if ttl_run.plan(context.lake, declared_table) is None:  # also refuses a table without a TTL
        raise not_written(declared_table, operation=f"TTL of {table}")
    settings = context.lake.settings
    with open_recorder(settings) as recorder, driver_for_command(settings):
        [run] = recorder.materialize([f"ttl/{table}"], config={"anyway": anyway})
    document: Mapping[str, Any] = run.outcome()["lakehouse/ttl"]
    if as_json:
        write_json(document)
    else:
        _print(document)


def _print(document: Mapping[str, Any]) -> None:
    show(f"{document['table']}: {document['sentence']}")
    rows = [
        (
            "the log alone" if step["by_metadata"] else "reads rows",
            "all" if step["partitions"] is None else count_text(step["partitions"]),
            count_text(step["files"]),
            bytes_text(step["scanned_bytes"]),
            count_text(step["least_rows"]),
            count_text(step["most_rows"]),
        )
        for step in document["steps"]
    ]
    heads = ("step", "partitions", "files", "rewritten at most", "rows, at least", "rows, at most")
    if rows:
        print_grid(heads, rows, numbers=heads[1:])
        show(f"predicted: {document['seconds']:.1f} s, {document['usd']:.6f} USD")
    for note in document["notes"]:
        show(f"{document['table']}: {note}")
    print_figures(document)
