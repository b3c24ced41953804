"""`lakehouse archive`, `lakehouse restore`, `lakehouse ttl` and `lakehouse tiers`."""

import json
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

import click

from lakehouse.base.text import Document
from lakehouse.cli.context import (
    not_written,
    open_declared,
    open_table,
    table_argument,
)
from lakehouse.cli.dagster_events import report_change, report_to_dagster
from lakehouse.cli.output import (
    bytes_text,
    count_text,
    flag,
    json_option,
    print_figures,
    print_grid,
    show,
    show_lines,
    time_text,
    working,
    write_json,
)
from lakehouse.cli.server_command import driver_on_demand, table_session
from lakehouse.compact.assess import refuse_held
from lakehouse.declare.table import Table
from lakehouse.lake.lake import Lake, is_written
from lakehouse.retain.plan.archive import ArchivePlan, parsed_values, partition_text
from lakehouse.retain.plan.tiers import tier_rule
from lakehouse.retain.plan.ttl import TtlPlan
from lakehouse.retain.run import archive as archive_run
from lakehouse.retain.run import tiers as tiers_run
from lakehouse.retain.run import ttl as ttl_run
from lakehouse.retain.run.archive import RetentionOutcome
from lakehouse.vacuum.facts import LakeFacts

if TYPE_CHECKING:
    from lakehouse.assets.events import Event, Reporter

_ANYWAY = flag("--anyway", help="Also if the table is paused.")
_DRY_RUN = flag("--dry-run", help="Show only the plan. Starts no JVM.")
_PARTITIONS = "COLUMN=VALUE"


@click.command("archive", epilog="Example: lakehouse archive bronze/flight_events --dry-run")
@table_argument
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
    replaced = [parsed_values(text) for text in replace]
    plan = partial(archive_run.plan, replace=replaced)
    run = partial(archive_run.run_archive, replace=replaced)
    _plan_or_run("archive", table, plan, None if dry_run else run, anyway=anyway, as_json=as_json)


@click.command("ttl", epilog="Example: lakehouse ttl bronze/weather --dry-run")
@table_argument
@_DRY_RUN
@_ANYWAY
@json_option
def ttl_command(table: str, dry_run: bool, anyway: bool, as_json: bool) -> None:
    """Delete expired rows of TABLE.

    A table declares when its rows expire: Table(ttl=Ttl(column="event_time", days=365)). A later
    vacuum deletes the files that held the rows.
    """
    run = None if dry_run else ttl_run.run_ttl
    _plan_or_run("ttl", table, ttl_run.plan, run, anyway=anyway, as_json=as_json)


def _plan_or_run(
    operation: str,
    table: str,
    plan: Callable[[Lake, Table], ArchivePlan | TtlPlan],
    run: Callable[..., RetentionOutcome] | None,
    *,
    anyway: bool,
    as_json: bool,
) -> None:
    """Plans an operation, runs it unless `run` is `None`, and prints the plan or the outcome.

    A run reports to Dagster what its asset would have reported.
    """
    context, declared = open_table(table)
    lake = context.lake
    name = f"{operation} of {declared.key}"
    if not is_written(lake, declared.key):
        raise not_written(declared, operation=name)
    document = plan(lake, declared).as_json()
    if run is not None:
        if not anyway:
            refuse_held(lake, declared, operation)
        with working(name), driver_on_demand(lake.settings) as spark:
            outcome = run(lake, declared, spark)
        document = outcome.as_json()

        def events(reporter: "Reporter") -> "Iterable[Event]":
            from lakehouse.retain.asset import retention_events

            return retention_events(reporter, declared, lake, operation, outcome)

        report_to_dagster(lake.settings, f"the {name} is done", events)
    _show(document, as_json=as_json)


def _show(document: Document, *, as_json: bool) -> None:
    if as_json:
        write_json(document)
        return
    for side, head in (("partitions", "partition"), ("expiring", "expires")):
        heads = (head, "rows", "files", "bytes", "expires on")
        rows = [
            (
                partition_text(each["values"].items()),
                count_text(each["rows"]),
                count_text(each["files"]),
                bytes_text(each["bytes"]),
                time_text(each["expires_ms"]),
            )
            for each in document.get(side, ())
        ]
        if rows:
            print_grid(heads, rows, numbers=heads[1:4])
    for sentence in (document["sentence"], *document.get("notes", ())):
        show(f"{document['table']}: {sentence}")
    print_figures(document)


@click.command(
    "restore",
    epilog="Example: lakehouse restore bronze/flight_events --partition event_date=2013-01-05",
)
@table_argument
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
        with table_session(lake, declared_table) as session:
            outcome = run_restore(session, chosen)
        document = outcome.as_json()
        report_change(lake, declared_table, "restored", outcome.plan.sentence)
    _show(document, as_json=as_json)


@click.command("tiers", epilog="Example: lakehouse tiers bronze/weather --dry-run")
@table_argument
@flag("--dry-run", help="List every file that would be tagged, and tag none.")
@json_option
def tiers_command(table: str, dry_run: bool, as_json: bool) -> None:
    """Tag removed files that TABLE keeps for more than a month, for a cheaper storage class.

    Works only on S3. The printed lifecycle rule moves the tagged files to Infrequent Access, then
    to Glacier. Add it to the rules of the bucket once. A file that is needed again loses its tag.
    """
    context = open_declared()
    lake = context.lake
    [declared] = context.choose([table])
    facts = LakeFacts(lake, [*context.tables.values()])
    plan = tiers_run.run(facts, declared, dry_run=dry_run)
    if plan is None:
        raise not_written(declared, operation=f"tiers of {declared.key}")
    rule = tier_rule(lake.store.prefix)
    if as_json:
        write_json({**plan.as_json(), "rule": rule})
        return
    show(f"{plan.table}: {plan.sentence}")
    for name in plan.tag if dry_run else ():
        show(f"{plan.table}/{name}")
    for name in plan.untag:
        show(f"{plan.table}/{name} {'would lose' if dry_run else 'has lost'} the tag")
    show("This rule moves the tagged files. Add it to the lifecycle rules of the bucket:")
    show_lines(json.dumps(rule, indent=2))
