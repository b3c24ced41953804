"""`lakehouse quarantine`: shows, retries and drops landed lines and files that did not load."""

from dataclasses import asdict

import click

from lakehouse.cli.context import complete_table, open_landed
from lakehouse.cli.output import count_text, json_option, print_grid, show, time_text, write_json
from lakehouse.cli.spark_server import driver_for_command
from lakehouse.declare.table import Table
from lakehouse.lake.lake import Lake, TableSession
from lakehouse.land.plan.batches import QuarantineReview
from lakehouse.land.quarantine import run as quarantine
from lakehouse.spark.session import connect

_files_option = click.option(
    "--file",
    "files",
    multiple=True,
    metavar="PATH",
    help="Only entries of this landed file. May be given several times.",
)


@click.group("quarantine", epilog="Example: lakehouse quarantine show bronze/orders")
def quarantine_command() -> None:
    """Show, retry or settle landed lines and files that could not be loaded.

    These commands do not move or delete landed files.
    """


@quarantine_command.command("show", epilog="Example: lakehouse quarantine show bronze/orders")
@click.argument("table", shell_complete=complete_table)
@_files_option
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Show at most this many lines and files.",
)
@json_option
def show_command(table: str, files: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Show the newest lines and files in quarantine, with reasons.

    For a whole file, line and text are shown as "-". `lakehouse health` shows how many each table
    has.
    """
    context, declared_table = open_landed(table, command="quarantine")
    with driver_for_command(context.lake.settings):
        session = _session(context.lake, declared_table)
        document = quarantine.show(session, files, limit=limit)
    if as_json:
        write_json(document)
        return
    print_grid(
        ("reason", "how many"),
        [(each["reason"], count_text(each["count"])) for each in document["reasons"]],
        numbers=("how many",),
    )
    rows = [
        (
            time_text(row["quarantined_ms"]),
            str(row["batch"]),
            row["source_file"],
            count_text(row["line"]),
            row["reason"],
            row["raw"] or "-",
        )
        for row in document["entries"]
    ]
    print_grid(
        ("quarantined", "batch", "file", "line", "reason", "text"), rows, numbers=("batch", "line")
    )


@quarantine_command.command(
    "retry", epilog="Example: lakehouse quarantine retry bronze/orders --dry-run"
)
@click.argument("table", shell_complete=complete_table)
@_files_option
@click.option("--dry-run", is_flag=True, help="Show what would be loaded again, and write nothing.")
@json_option
def retry_command(table: str, files: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Load quarantined lines and files again, as TABLE is declared now.

    Lines are written to a new landed file of the table's own format, and whole files are marked as
    not loaded. Both leave the quarantine; entries that must stay are shown with the reason. Then
    Dagster materializes TABLE. Lines and files that still cannot be loaded are quarantined again,
    with their new reason.
    """
    from lakehouse.cli.dagster_runs import open_recorder

    context, declared_table = open_landed(table, command="quarantine")
    with driver_for_command(context.lake.settings):
        outcome = quarantine.retry(_session(context.lake, declared_table), files, dry_run=dry_run)
        # Even if nothing was retried: an earlier retry may have been killed before its load.
        if not dry_run:
            with open_recorder(context.lake.settings) as recorder:
                [run] = recorder.materialize([declared_table.asset_key])
            if run.error:
                raise run.error
    _print_review(outcome, as_json=as_json)


@quarantine_command.command(
    "drop",
    epilog="Example: lakehouse quarantine drop bronze/orders --why 'sent again as 7b.json'",
)
@click.argument("table", shell_complete=complete_table)
@_files_option
@click.option(
    "--why",
    required=True,
    metavar="TEXT",
    help="How the entries were handled. Recorded in the quarantine's log.",
)
@click.option(
    "--dry-run", is_flag=True, help="Show how many entries would be removed, and write nothing."
)
@json_option
def drop_command(
    table: str, files: tuple[str, ...], why: str, dry_run: bool, as_json: bool
) -> None:
    """Record lines and files in quarantine as handled in another way.

    They leave the quarantine, and are not loaded. Landed files stay where they are.
    """
    context, declared_table = open_landed(table, command="quarantine")
    with driver_for_command(context.lake.settings):
        outcome = quarantine.drop(
            _session(context.lake, declared_table), files, why=why, dry_run=dry_run
        )
    _print_review(outcome, as_json=as_json)


def _session(lake: Lake, table: Table) -> TableSession:
    return TableSession(lake=lake, spark=connect(lake.settings), table=table)


def _print_review(outcome: QuarantineReview, *, as_json: bool) -> None:
    if as_json:
        write_json({**asdict(outcome), "sentence": outcome.sentence})
    else:
        show(f"{outcome.table}: {outcome.sentence}")
