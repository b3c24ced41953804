"""`lakehouse archive`, `lakehouse restore`, `lakehouse ttl` and `lakehouse tiers`."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from lakehouse.cli.context import (
    complete_table,
    not_written,
    open_declared,
    open_table,
    print_errors,
)
from lakehouse.cli.dagster_events import report_change, report_to_dagster
from lakehouse.cli.output import (
    bytes_text,
    count_text,
    json_option,
    print_figures,
    print_grid,
    show,
    time_text,
    working,
    write_json,
)
from lakehouse.cli.spark_server import driver_for_command, driver_on_demand
from lakehouse.compact.assess import refuse_held
from lakehouse.declare.table import Table
from lakehouse.lake.lake import Lake, TableSession
from lakehouse.lake.read_each_table import attempt
from lakehouse.retain.plan.archive import parsed_values, partition_text
from lakehouse.retain.plan.tiers import tier_rule
from lakehouse.retain.run import archive as archive_run
from lakehouse.retain.run import tiers as tiers_run
from lakehouse.retain.run import ttl as ttl_run
from lakehouse.retain.run.outcome import RetentionOutcome
from lakehouse.spark.session import connect
from lakehouse.vacuum.lake_facts import LakeFacts

if TYPE_CHECKING:
    from lakehouse.assets.events import Event, Reporter

_ANYWAY = click.option("--anyway", is_flag=True, help="Also if the table is paused.")
_DRY_RUN = click.option("--dry-run", is_flag=True, help="Show only the plan. Starts no JVM.")
_PARTITIONS = "COLUMN=VALUE"


@click.command("archive", epilog="Example: lakehouse archive bronze/flight_events --dry-run")
@click.argument("table", shell_complete=complete_table)
@_DRY_RUN
@click.option(
    "--replace",
    multiple=True,
    metavar=_PARTITIONS,
    help="Rows of these partitions replace the archived rows.",
)
@_ANYWAY
@json_option
def archive_command(
    table: str, dry_run: bool, replace: tuple[str, ...], anyway: bool, as_json: bool
) -> None:
    """Move old partitions of TABLE to its archive, and delete expired ones from it.

    A table declares its archive with Table(archive=Archive(older_than_days=31, keep_days=183)).
    Downstream tables keep their rows, except tables that read all rows of TABLE in each run.
    """
    context, declared_table = open_table(table)
    key = declared_table.key
    replaced = [parsed_values(text) for text in replace]
    plan = archive_run.plan(context.lake, declared_table, replace=replaced)
    if plan is None:
        raise not_written(declared_table, operation=f"archive of {key}")
    document: Mapping[str, Any] = plan.as_json()
    if not dry_run:
        session = partial(connect, context.lake.settings)
        run = partial(
            archive_run.run_archive, context.lake, declared_table, session, replace=replaced
        )
        document = _run(context.lake, declared_table, "archive", run, anyway=anyway)
    if as_json:
        write_json(document)
        return
    _print_partitions("leaves the table", document["partitions"])
    _print_partitions("expires", document["expiring"])
    _print(document)


@click.command("ttl", epilog="Example: lakehouse ttl bronze/weather --dry-run")
@click.argument("table", shell_complete=complete_table)
@_DRY_RUN
@_ANYWAY
@json_option
def ttl_command(table: str, dry_run: bool, anyway: bool, as_json: bool) -> None:
    """Delete expired rows of TABLE.

    A table declares when its rows expire: Table(ttl=Ttl(column="event_time", days=365)). A later
    vacuum deletes the files that held the rows.
    """
    context, declared_table = open_table(table)
    key = declared_table.key
    plan = ttl_run.plan(context.lake, declared_table)
    if plan is None:
        raise not_written(declared_table, operation=f"ttl of {key}")
    document: Mapping[str, Any] = plan.as_json()
    if not dry_run:
        session = partial(connect, context.lake.settings)
        run = partial(ttl_run.run_ttl, context.lake, session, declared_table)
        document = _run(context.lake, declared_table, "ttl", run, anyway=anyway)
    if as_json:
        write_json(document)
        return
    _print(document)


def _print_partitions(what: str, partitions: Sequence[Mapping[str, Any]]) -> None:
    heads = (what, "rows", "files", "bytes", "expires on")
    rows = [
        (
            partition_text(each["values"].items()),
            count_text(each["rows"]),
            count_text(each["files"]),
            bytes_text(each["bytes"]),
            time_text(each["expires_ms"]),
        )
        for each in partitions
    ]
    if rows:
        print_grid(heads, rows, numbers=heads[1:4])


def _print(document: Mapping[str, Any]) -> None:
    table = document["table"]
    show(f"{table}: {document['sentence']}")
    for note in document["notes"]:
        show(f"{table}: {note}")
    print_figures(document)


def _run(
    lake: Lake,
    table: Table,
    operation: str,
    run: Callable[[], RetentionOutcome],
    *,
    anyway: bool,
) -> Mapping[str, Any]:
    """Runs the operation, and reports to Dagster what its asset would have reported."""
    if not anyway:
        refuse_held(lake, table, operation)
    with working(f"{operation} of {table.key}"), driver_on_demand(lake.settings):
        outcome = run()

    def events(reporter: "Reporter") -> "Iterable[Event]":
        from lakehouse.retain.asset import retention_events

        return retention_events(reporter, table, lake, operation, outcome)

    report_to_dagster(lake.settings, f"the {operation} of {table.key} is done", events)
    return outcome.as_json()


@click.command(
    "restore",
    epilog="Example: lakehouse restore bronze/flight_events --partition event_date=2013-01-05",
)
@click.argument("table", shell_complete=complete_table)
@click.option(
    "--partition",
    "partitions",
    multiple=True,
    metavar=_PARTITIONS,
    help="Only partitions with this value. For several columns: COLUMN=VALUE,COLUMN=VALUE.",
)
@_DRY_RUN
@json_option
def restore_command(table: str, partitions: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Bring archived partitions back into TABLE. Default: all partitions.

    The rows leave the archive. Downstream tables do not read them again. With --dry-run, shows what
    the archive has, and until when.
    """
    from lakehouse.retain.run.read import restore_plan, run_restore

    context, declared_table = open_table(table)
    lake = context.lake
    chosen = [parsed_values(text) for text in partitions]
    plan = restore_plan(lake, declared_table, chosen)
    document = plan.as_json()
    if plan.partitions and not dry_run:
        with driver_for_command(lake.settings):
            session = TableSession(lake=lake, spark=connect(lake.settings), table=declared_table)
            plan, version, seconds = run_restore(session, chosen)
        document = {**plan.as_json(), "version_after": version, "seconds": round(seconds, 3)}
        report_change(lake, declared_table, "restored", plan.sentence)
    if as_json:
        write_json(document)
        return
    _print_partitions("archived", document["partitions"])
    show(f"{plan.table}: {plan.sentence}")
    if "version_after" in document:
        show(f"{plan.table}: done in version {document['version_after']}")


@click.command("tiers", epilog="Example: lakehouse tiers bronze/weather --dry-run")
@click.argument(
    "tables", metavar="TABLE...", nargs=-1, required=True, shell_complete=complete_table
)
@click.option("--dry-run", is_flag=True, help="List every file that would be tagged, and tag none.")
@json_option
def tiers_command(tables: tuple[str, ...], dry_run: bool, as_json: bool) -> int:
    """Tag removed files that TABLE keeps for more than a month, for a cheaper storage class.

    Works only on S3. The printed lifecycle rule moves the tagged files to Infrequent Access, then
    to Glacier. Add it to the rules of the bucket once. A file that is needed again loses its tag.
    """
    context = open_declared()
    lake = context.lake
    chosen = context.choose(tables)
    facts = LakeFacts(lake, [*context.tables.values()], wanted={table.key for table in chosen})
    run = partial(tiers_run.run, facts, dry_run=dry_run)
    readings = [attempt(table, run) for table in chosen]
    plans = [each.value for each in readings if each.value is not None]
    rule = tier_rule(lake.store.prefix)
    if as_json:
        others = [
            {"table": each.table.key, "reason": each.reason, "sentence": each.sentence}
            for each in readings
            if each.value is None
        ]
        write_json({"tables": [*(plan.as_json() for plan in plans), *others], "rule": rule})
        return print_errors(readings)
    rows = [(plan.table, bytes_text(plan.size_bytes), plan.sentence) for plan in plans]
    print_grid(("table", "bytes", ""), rows, numbers=("bytes",))
    for plan in plans:
        for name in plan.tag if dry_run else ():
            show(f"{plan.table}/{name}")
        for name in plan.untag:
            show(f"{plan.table}/{name} {'would lose' if dry_run else 'has lost'} the tag")
    show("This rule moves the tagged files. Add it to the lifecycle rules of the bucket:")
    show(json.dumps(rule, indent=2))
    return print_errors(readings)
