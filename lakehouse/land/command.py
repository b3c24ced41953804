"""The commands `lakehouse landing`, `schema` and `quarantine`."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import click

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import Broken, Refused
from lakehouse.base.text import Document, count_of
from lakehouse.cli.context import LakeContext, open_declared, open_landed, table_argument
from lakehouse.cli.output import (
    count_text,
    flag,
    json_option,
    print_grid,
    show,
    time_text,
    write_json,
)
from lakehouse.cli.server_command import table_session
from lakehouse.declare.knobs import changed_fields
from lakehouse.declare.landing import Landing
from lakehouse.declare.table import Table
from lakehouse.delta.commits import ingest_app_id
from lakehouse.delta.log import TableFacts
from lakehouse.init.plan import python_source, suggest, table_name
from lakehouse.lake.lake import TableSession
from lakehouse.land import quarantine
from lakehouse.land.decode import files_schema
from lakehouse.land.ledger import (
    landed_files,
    last_loaded,
    planned_batches,
    quarantined_count,
    record_loaded,
    unfinished_batch,
)
from lakehouse.land.plan.batches import (
    Batch,
    describe_set_aside,
    quarantine_sentence,
)
from lakehouse.land.plan.choose_files import (
    choose_batch,
    may_be_by_spark,
    repeat_batch,
)
from lakehouse.land.quarantine import QuarantineReview


@click.command(
    "landing",
    epilog="Examples: lakehouse landing bronze/orders; "
    "lakehouse landing bronze/orders --arrived 17",
)
@table_argument
@click.option(
    "--arrived",
    type=click.IntRange(min=0),
    metavar="N",
    help="Record batches 1 to N as loaded in the table's log.",
)
@json_option
def landing_command(table: str, arrived: int | None, as_json: bool) -> None:
    """Show TABLE's batches of landed files, the files set aside, and what the next load does.

    Nothing is loaded. If a table was re-created from a copy of its rows, its log does not record
    the loaded batches, and a load stops with an error. Use --arrived N if the table holds the rows
    of batches 1 to N, and no rows of later batches. --arrived adds a commit without rows.
    """
    context, declared_table = open_landed(table, command="landing")
    if arrived is not None:
        with table_session(context.lake, declared_table) as session:
            record_loaded(session, arrived)
    document = _document(context, declared_table)
    if as_json:
        write_json(document)
        return
    rows = document["quarantine_rows"]
    in_quarantine = "" if rows is None else quarantine_sentence(table, lines=rows)
    sentences = (
        document["sentence"],
        document["set_aside"],
        in_quarantine,
        document["next"],
    )
    for sentence in filter(None, sentences):
        names_table = sentence.startswith(("load of ", "landing of "))  # as errors do
        show(sentence if names_table else f"{table}: {sentence}")


def _document(context: LakeContext, table: Table) -> Document:
    landing = table.landing
    batches = planned_batches(context.lake, table)
    ledger = batches.ledger()
    facts = context.lake.facts(table.key)
    last_batch, loaded = _last_batch(table, facts)
    try:
        unfinished = unfinished_batch(
            context.lake, table, last_loaded(table, facts, ledger), ledger, batches
        )
        if unfinished is None:
            listing = landed_files(context.lake.store, landing)
            plan = choose_batch(listing, ledger, landing, table.write, now_ms=now_ms())
        else:
            plan = repeat_batch(unfinished)
        next_load = plan.sentence
        if plan.batch and plan.batch.files:
            next_load += f"; {_readers(plan.batch, landing)}"
    except (Broken, Refused) as error:
        next_load = str(error)  # the error that will stop the next load
    # Forgotten files were loaded, but are no longer in `seen`.
    taken_in_ledger = sum(each.loaded is not None for each in ledger.seen.values())
    taken_count = taken_in_ledger + len(ledger.forgotten)
    planned = ledger.newest_number
    batches_text = f"{planned} planned batch{'' if planned == 1 else 'es'}"
    files_text = count_of(taken_count, "file")
    return {
        "table": table.key,
        "prefix": landing.prefix,
        "planned": planned,
        "arrived": last_batch,
        "files_taken": taken_count,
        "files_set_aside": len(ledger.seen) - taken_in_ledger,
        "quarantine_rows": quarantined_count(context.lake, table.key),
        "set_aside": describe_set_aside(ledger, landing),
        "next": next_load,
        "sentence": f"{files_text} below {landing.prefix} in {batches_text}; {loaded}",
    }


def _last_batch(table: Table, facts: TableFacts | None) -> tuple[int | None, str]:
    """The last batch that the table's log records, if any, and a sentence about it."""
    if facts is None:
        return None, "the table does not exist yet"
    last_batch = facts.snapshot.transactions.get(ingest_app_id(table.key))
    if last_batch is None:
        return None, "the table's log does not record which batches are loaded"
    return last_batch, f"the table's log records batch {last_batch} as the last one loaded"


def _readers(batch: Batch, landing: Landing) -> str:
    """Who reads the files of a batch."""
    count = sum(file.by_spark or may_be_by_spark(file, landing) for file in batch.files)
    if not count:
        return "the process that loads reads them, and stages their records for Spark"
    return f"Spark itself reads {count} of them, if their content allows it"


@click.command("schema", epilog="Example: lakehouse schema orders-0001.csv")
@click.argument("name", metavar="FILE", type=click.Path())
@json_option
def schema_command(name: str, as_json: bool) -> None:
    """Print a schema to declare for FILE. Does not start a JVM.

    FILE is on this machine or below the lake's root. Prints a Landing to copy, with the types that
    a Parquet or Avro file records, or that the values of a CSV or JSON file have.
    """
    path = Path(name)
    data = path.read_bytes() if path.is_file() else open_declared().lake.store.read(name)
    table = table_name([path.name, path.parent.name])
    schema = files_schema({name: data})
    found = suggest(schema, [name], key=f"bronze/{table}", prefix=f"landing/{table}/")
    landing = found.table.landing
    if as_json:
        write_json(
            {
                "file": name,
                "format": landing.format,
                "schema": landing.schema,
                "csv": changed_fields(landing.csv),
                "null_value": landing.null_value,
                "encoding": landing.encoding,
                "renamed": found.table.renamed,
                "left_out": schema.left_out,
            }
        )
        return
    for line in python_source("", landing):
        show(line)
    if found.table.renamed:
        show("# In the Table:")
        for line in python_source("renamed=", found.table.renamed, end=","):
            show(line)
    for note in found.notes:
        show(f"# {note}")


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
@table_argument
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
    with _open_session(table) as session:
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
@table_argument
@_files_option
@flag("--dry-run", help="Show what would be loaded again, and write nothing.")
@json_option
def retry_command(table: str, files: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Load quarantined lines and files again, as TABLE is declared now.

    Lines are written to a new landed file of the table's own format, and whole files are marked as
    not loaded. Both leave the quarantine; entries that must stay are shown with the reason. Then
    Dagster materializes TABLE. Lines and files that still cannot be loaded are quarantined again,
    with their new reason.
    """
    from lakehouse.cli.dagster_runs import materialize

    with _open_session(table) as session:
        outcome = quarantine.retry(session, files, dry_run=dry_run)
        # Even if nothing was retried: an earlier retry may have been killed before its load.
        if not dry_run:
            [run] = materialize(session.lake.settings, [session.table.asset_key])
            if run.error:
                raise run.error
    _print_review(outcome, as_json=as_json)


@quarantine_command.command(
    "drop",
    epilog="Example: lakehouse quarantine drop bronze/orders --why 'sent again as 7b.json'",
)
@table_argument
@_files_option
@click.option(
    "--why",
    required=True,
    metavar="TEXT",
    help="How the entries were handled. Recorded in the quarantine's log.",
)
@flag("--dry-run", help="Show how many entries would be removed, and write nothing.")
@json_option
def drop_command(
    table: str, files: tuple[str, ...], why: str, dry_run: bool, as_json: bool
) -> None:
    """Record lines and files in quarantine as handled in another way.

    They leave the quarantine, and are not loaded. Landed files stay where they are.
    """
    with _open_session(table) as session:
        outcome = quarantine.drop(session, files, why=why, dry_run=dry_run)
    _print_review(outcome, as_json=as_json)


@contextmanager
def _open_session(table: str) -> Iterator[TableSession]:
    """Starts Spark only if the table has a quarantine."""
    context, declared_table = open_landed(table, command="quarantine")
    lake = context.lake
    quarantine.facts_of(lake, declared_table.key)
    with table_session(lake, declared_table) as session:
        yield session


def _print_review(outcome: QuarantineReview, *, as_json: bool) -> None:
    if as_json:
        write_json({**asdict(outcome), "sentence": outcome.sentence})
    else:
        show(f"{outcome.table}: {outcome.sentence}")
