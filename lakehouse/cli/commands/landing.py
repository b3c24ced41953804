"""`lakehouse landing`: shows a table's batches of landed files, and what the next load does."""

from typing import Any

import click

from lakehouse.cli.context import LakeContext, complete_table, open_landed
from lakehouse.cli.output import json_option, show, write_json
from lakehouse.cli.spark_server import driver_for_command
from lakehouse.core.declaration.table import Table
from lakehouse.core.errors import Broken, Refused
from lakehouse.core.ingest.batches import ingest_app_id
from lakehouse.core.ingest.choose_files import choose_batch, repeat_batch
from lakehouse.core.ingest.outcome import describe_set_aside, quarantine_sentence
from lakehouse.core.text import count_of
from lakehouse.engine.clock import now_ms
from lakehouse.engine.delta_log import TableFacts
from lakehouse.engine.ingest.loaded_batches import last_loaded, record_loaded, unfinished_batch
from lakehouse.engine.ingest.quarantine.entries import quarantined_count
from lakehouse.engine.ingest.retire import plan_landed
from lakehouse.engine.journal.planned_batches import PlannedBatches, landed_files
from lakehouse.engine.lake import Lake, TableSession
from lakehouse.engine.spark.open_session import connect

# Shown if Spark may run on other machines: the process that loads still does part of the work.
_READ_BY_LOADER = (
    "; the process that loads reads the files and stages them in parts of about 16 MiB; Spark does "
    "the rest"
)


@click.command(
    "landing",
    epilog="Examples: lakehouse landing bronze/orders; "
    "lakehouse landing bronze/orders --arrived 17",
)
@click.argument("table", shell_complete=complete_table)
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
        settings = context.lake.settings
        with driver_for_command(settings):
            session = TableSession(lake=context.lake, spark=connect(settings), table=declared_table)
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
        document["after_load"],
    )
    for sentence in sentences:
        if not sentence:
            continue
        names_table = sentence.startswith(("load of ", "landing of "))  # as errors do
        show(sentence if names_table else f"{table}: {sentence}")


def _document(context: LakeContext, table: Table) -> dict[str, Any]:
    landing = table.landing
    batches = PlannedBatches(context.lake.store, table.key, prefix=landing.prefix)
    ledger = batches.ledger()
    facts = context.lake.facts(table.key)
    planned_count = 0 if ledger.newest is None else ledger.newest.number
    last_batch = None
    if facts is None:
        loaded = "the table does not exist yet"
    else:
        last_batch = facts.snapshot.transactions.get(ingest_app_id(table.key))
        loaded = "the table's log does not record which batches are loaded"
        if last_batch is not None:
            loaded = f"the table's log records batch {last_batch} as the last one loaded"
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
        if plan.batch and context.lake.settings.spark.startswith(("sc://", "spark://")):
            next_load += _READ_BY_LOADER
    except (Broken, Refused) as error:
        next_load = str(error)  # the error that will stop the next load
    after_load = None
    if landing.after_load != "keep":
        after_load = _retirement_sentence(context.lake, table, batches, facts)
    # Forgotten files were loaded, but are no longer in `seen`.
    taken_in_ledger = sum(each.is_taken for each in ledger.seen.values())
    taken_count = taken_in_ledger + len(ledger.forgotten)
    batches_text = f"{planned_count} planned batch{'' if planned_count == 1 else 'es'}"
    files_text = count_of(taken_count, "file")
    return {
        "table": table.key,
        "prefix": landing.prefix,
        "planned": planned_count,
        "arrived": last_batch,
        "files_taken": taken_count,
        "files_set_aside": len(ledger.seen) - taken_in_ledger,
        "quarantine_rows": quarantined_count(context.lake, table.key),
        "set_aside": describe_set_aside(ledger, landing),
        "next": next_load,
        "after_load": after_load,
        "sentence": f"{files_text} below {landing.prefix} in {batches_text}; {loaded}",
    }


def _retirement_sentence(
    lake: Lake, table: Table, batches: PlannedBatches, facts: TableFacts | None
) -> str:
    """How many loaded files the next load deletes, and why others stay; or the plan's error."""
    try:
        return f"with the next load {plan_landed(lake, table, batches, facts).sentence}"
    except Refused as error:
        return str(error)
