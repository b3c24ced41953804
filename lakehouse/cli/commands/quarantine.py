"""`lakehouse quarantine`: landed lines and files that are no rows; seen, read again, or settled on a person's word."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import click

from lakehouse.cli.context import LakeContext, complete_table, landing_of, open_declared, open_table
from lakehouse.cli.output import attributes, count_text, json_option, print_grid, show, time_text, write_json
from lakehouse.cli.spark_server import driver_for_command
from lakehouse.core.declaration.table import Table
from lakehouse.core.ingest.outcome import QuarantineReview
from lakehouse.engine.quarantine import review

_SHOWN = 20


@click.group(
    "quarantine",
    short_help="Landed lines and files that are no rows: seen, read again, settled.",
    epilog="Example: lakehouse quarantine list",
)
def quarantine_command() -> None:
    """See what was refused of the landed files, have it read again, or say that it was taken care of. Landed files stay where they are."""


def _one_table(command: Callable[..., Any]) -> Callable[..., Any]:
    """The argument TABLE and the option `--file`."""
    files = click.option("--file", "files", multiple=True, metavar="PATH", help="Only of this landed file; may be given several times.")
    return click.argument("table", shell_complete=complete_table)(files(command))


@quarantine_command.command("list", short_help="How much each table's quarantine holds.", epilog="Example: lakehouse quarantine list")
@click.argument("tables", metavar="[TABLE]...", nargs=-1, shell_complete=complete_table)
@json_option
def list_command(tables: tuple[str, ...], as_json: bool) -> None:
    """Show how much the quarantine of each TABLE (default: all) holds, and how much of it was read again or settled so far."""
    opened = open_declared()
    landed = [table for table in opened.choose(tables) if (tables and landing_of(table, asked="quarantine")) or table.source]
    accounts = [(table.key, review.account_of(opened.lake, table)) for table in landed]
    counts = ("rows", "retried", "settled")
    documents: list[dict[str, Any]] = [
        {"table": key} | (attributes(account, *counts) if account else dict.fromkeys(counts, 0)) for key, account in accounts
    ]
    if as_json:
        write_json(documents)
        return
    heads = ("table", "in quarantine", "read again", "settled")
    rows = [(each["table"], *(count_text(each[name]) for name in counts)) for each in documents]
    print_grid(heads, rows, numbers=heads[1:])


@quarantine_command.command(
    "show", short_help="The reasons, and the newest lines and files.", epilog="Example: lakehouse quarantine show bronze/orders"
)
@_one_table
@click.option("--limit", type=click.IntRange(min=1), default=_SHOWN, show_default=True, help="So many lines and files.")
@json_option
def show_command(table: str, files: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Show why lines and files of TABLE were refused, and the newest of them. A file has no line and no text."""
    opened, wanted = _open(table)
    with driver_for_command(opened.lake.settings):
        document = review.show(opened.lake, _session(opened), wanted, files, limit=limit)
    if as_json:
        write_json(document)
        return
    print_grid(("reason", "how many"), [(each["reason"], count_text(each["count"])) for each in document["reasons"]], numbers=("how many",))
    rows = [
        (time_text(row["quarantined_ms"]), str(row["batch"]), row["source_file"], count_text(row["line"]), row["reason"], row["raw"] or "-")
        for row in document["entries"]
    ]
    print_grid(("quarantined", "batch", "file", "line", "reason", "text"), rows, numbers=("batch", "line"))


@quarantine_command.command(
    "retry",
    short_help="Read lines and files again, as the table is declared now.",
    epilog="Example: lakehouse quarantine retry bronze/orders --dry-run",
)
@_one_table
@click.option("--dry-run", is_flag=True, help="Tell what would become rows, and write nothing.")
@json_option
def retry_command(table: str, files: tuple[str, ...], dry_run: bool, as_json: bool) -> int:
    """Parse the lines of TABLE's quarantine as it is declared now, and read its files again; then load the table, through Dagster.

    What is a row now goes to the table and leaves the quarantine; what is none stays, with the reason of now.
    """
    from lakehouse.cli.dagster_runs import open_recorder

    opened, wanted = _open(table)
    with driver_for_command(opened.lake.settings):
        done = review.retry(opened.lake, _session(opened), wanted, files, dry_run=dry_run)
        if not dry_run:  # also where nothing is left to do: a retry may have been killed before what follows heard of its rows
            with open_recorder(opened.lake.settings) as recorder:
                [run] = recorder.materialize([wanted.key])
            if run.error:
                raise run.error
    _tell(done, as_json=as_json)
    return 0


@quarantine_command.command(
    "settle",
    short_help="Say that lines and files were taken care of.",
    epilog="Example: lakehouse quarantine settle bronze/orders --file landing/orders/7.json --why 'sent again as 7b.json'",
)
@_one_table
@click.option("--why", required=True, metavar="TEXT", help="What was done about them; it stands in the quarantine's log.")
@click.option("--dry-run", is_flag=True, help="Tell how many would go, and write nothing.")
@json_option
def settle_command(table: str, files: tuple[str, ...], why: str, dry_run: bool, as_json: bool) -> None:
    """Take lines and files out of TABLE's quarantine, since a person took care of them. The landed files stay where they are."""
    opened, wanted = _open(table)
    with driver_for_command(opened.lake.settings):
        done = review.settle(opened.lake, _session(opened), wanted, files, why=why, dry_run=dry_run)
    _tell(done, as_json=as_json)


def _tell(done: QuarantineReview, *, as_json: bool) -> None:
    write_json({**asdict(done), "sentence": done.sentence}) if as_json else show(f"{done.table}: {done.sentence}")


def _open(key: str) -> tuple[LakeContext, Table]:
    opened, table = open_table(key)
    landing_of(table, asked="quarantine")
    return opened, table


def _session(opened: LakeContext) -> Any:
    from lakehouse.engine.spark.sessions import connect

    return connect(opened.lake.settings)
