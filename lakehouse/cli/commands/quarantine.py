"""`lakehouse quarantine`: shows, retries and settles landed lines and files that did not load."""

from collections.abc import Mapping
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
from lakehouse.core.declaration.table import Table
from lakehouse.core.ingest.outcome import QuarantineReview
from lakehouse.engine.ingest.quarantine import review
from lakehouse.engine.ingest.quarantine.retry import retry
from lakehouse.engine.lake import Lake, TableSession
from lakehouse.engine.spark.open_session import connect

_files_option = click.option(
    "--file",
    "files",
    multiple=True,
    metavar="PATH",
    help="Only entries of this landed file. May be given several times.",
)


@click.group("quarantine", epilog="Example: lakehouse quarantine list")
def quarantine_command() -> None:
    """Show, retry and settle landed lines and files that could not be loaded.

    These commands do not move or delete landed files.
    """


@quarantine_command.command("list", epilog="Example: lakehouse quarantine list")
@click.argument("tables", metavar="[TABLE]...", nargs=-1, shell_complete=complete_table)
@json_option
def list_command(tables: tuple[str, ...], as_json: bool) -> None:
    """Show how many entries of each TABLE (default: all) are in quarantine, retried or settled.

    An entry is a line, or a whole file. Retried and settled entries have left the quarantine.
    """
    context = open_declared()
    counts = ("rows", "retried", "settled")
    documents = list[dict[str, Any]]()
    for table in context.choose_landed(tables, command="quarantine"):
        account = review.account_of(context.lake, table)
        values: Mapping[str, Any] = dict.fromkeys(counts, 0)
        if account is not None:
            values = attributes(account, *counts)
        documents.append({"table": table.key, **values})
    if as_json:
        write_json(documents)
        return
    heads = ("table", "in quarantine", "retried", "settled")
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
    help="Show at most this many lines and files.",
)
@json_option
def show_command(table: str, files: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Show the newest lines and files of TABLE in quarantine, and the most frequent reasons.

    For a whole file, line and text are shown as "-".
    """
    context, declared_table = open_landed(table, command="quarantine")
    with driver_for_command(context.lake.settings):
        document = review.show(_session(context.lake, declared_table), files, limit=limit)
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

    Lines are written into a new file in the landing area, and whole files are marked as not loaded.
    Both leave the quarantine; entries that must stay are shown with the reason. Then Dagster
    materializes TABLE. Lines and files that still cannot be loaded are quarantined again, with
    their new reason.
    """
    from lakehouse.cli.dagster_runs import open_recorder

    context, declared_table = open_landed(table, command="quarantine")
    with driver_for_command(context.lake.settings):
        outcome = retry(_session(context.lake, declared_table), files, dry_run=dry_run)
        # Even if nothing was retried: an earlier retry may have been killed before its load.
        if not dry_run:
            with open_recorder(context.lake.settings) as recorder:
                [run] = recorder.materialize([declared_table.asset_key])
            if run.error:
                raise run.error
    _print_review(outcome, as_json=as_json)


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
    help="How the entries were handled. Recorded in the quarantine's log.",
)
@click.option(
    "--dry-run", is_flag=True, help="Show how many entries would be removed, and write nothing."
)
@json_option
def settle_command(
    table: str, files: tuple[str, ...], why: str, dry_run: bool, as_json: bool
) -> None:
    """Record that quarantined lines and files of TABLE were handled in another way.

    The entries leave the quarantine, and are not loaded. Landed files stay where they are.
    """
    context, declared_table = open_landed(table, command="quarantine")
    with driver_for_command(context.lake.settings):
        outcome = review.settle(
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
