"""`lakehouse quarantine`: landed lines and files that are no rows; seen, read again, or settled on a person's word."""

from dataclasses import asdict
from typing import Any

import click

from lakehouse.cli.context import complete_table, open_declared, open_landed
from lakehouse.cli.output import (
    attributes,
    count_text,
    json_option,
    print_grid,
    show,
    time_text,
    write_json,
)
from lakehouse.cli.spark_server import driver_for_command
from lakehouse.core.ingest.outcome import QuarantineReview
from lakehouse.engine.quarantine import review
from lakehouse.engine.spark.open_session import connect

_files_option = click.option(
    "--file",
    "files",
    multiple=True,
    metavar="PATH",
    help="Only of this landed file; may be given several times.",
)


@click.group("quarantine", epilog="Example: lakehouse quarantine list")
def quarantine_command() -> None:
    """See landed lines and files that are no rows; settle them. They can be read again, too. Landed files stay where they are."""


@quarantine_command.command("list", epilog="Example: lakehouse quarantine list")
@click.argument("tables", metavar="[TABLE]...", nargs=-1, shell_complete=complete_table)
@json_option
def list_command(tables: tuple[str, ...], as_json: bool) -> None:
    """Show how much the quarantine of each TABLE (default: all) holds. Beside it stands how much was read again or settled so far."""
    opened = open_declared()
    counts, documents = ("rows", "retried", "settled"), list[dict[str, Any]]()
    for table in opened.choose_landed(tables, asked="quarantine"):
        account = review.account_of(opened.lake, table)
        documents.append(
            {
                "table": table.key,
                **(attributes(account, *counts) if account else dict.fromkeys(counts, 0)),
            }
        )
    if as_json:
        write_json(documents)
        return
    heads = ("table", "in quarantine", "read again", "settled")
    rows = [(each["table"], *(count_text(each[name]) for name in counts)) for each in documents]
    print_grid(heads, rows, numbers=heads[1:])


@quarantine_command.command("show", epilog="Example: lakehouse quarantine show bronze/orders")
@click.argument("table", shell_complete=complete_table)
@_files_option
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="So many lines and files.",
)
@json_option
def show_command(table: str, files: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Show the reasons, and the newest lines and files of TABLE. A file has no line and no text."""
    opened, wanted = open_landed(table, asked="quarantine")
    with driver_for_command(opened.lake.settings):
        document = review.show(
            opened.lake, connect(opened.lake.settings), wanted, files, limit=limit
        )
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
@click.option("--dry-run", is_flag=True, help="Tell what would become rows, and write nothing.")
@json_option
def retry_command(table: str, files: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Read lines and files again, as TABLE is declared now. Then it is loaded, through Dagster.

    What is a row now goes to the table and leaves the quarantine; what is none stays, with the reason of now.
    """
    from lakehouse.cli.dagster_runs import open_recorder

    opened, wanted = open_landed(table, asked="quarantine")
    with driver_for_command(opened.lake.settings):
        done = review.retry(
            opened.lake, connect(opened.lake.settings), wanted, files, dry_run=dry_run
        )
        if not dry_run:  # also where nothing is left to do: a retry may have been killed before what follows heard of its rows
            with open_recorder(opened.lake.settings) as recorder:
                [run] = recorder.materialize([wanted.key])
            if run.error:
                raise run.error
    _tell(done, as_json=as_json)


@quarantine_command.command(
    "settle",
    epilog="Example: lakehouse quarantine settle bronze/orders --why 'sent again as 7b.json'",
)
@click.argument("table", shell_complete=complete_table)
@_files_option
@click.option(
    "--why",
    required=True,
    metavar="TEXT",
    help="What was done about them; it stands in the quarantine's log.",
)
@click.option("--dry-run", is_flag=True, help="Tell how many would go, and write nothing.")
@json_option
def settle_command(
    table: str, files: tuple[str, ...], why: str, dry_run: bool, as_json: bool
) -> None:
    """Say that lines and files of TABLE were taken care of. They leave the quarantine; the landed files stay where they are."""
    opened, wanted = open_landed(table, asked="quarantine")
    with driver_for_command(opened.lake.settings):
        done = review.settle(
            opened.lake, connect(opened.lake.settings), wanted, files, why=why, dry_run=dry_run
        )
    _tell(done, as_json=as_json)


def _tell(done: QuarantineReview, *, as_json: bool) -> None:
    write_json({**asdict(done), "sentence": done.sentence}) if as_json else show(
        f"{done.table}: {done.sentence}"
    )
