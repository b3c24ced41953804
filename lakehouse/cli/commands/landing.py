"""`lakehouse landing`: shows which files have landed for a table, and which it has loaded."""

from typing import Any

import click

from lakehouse.cli.context import LakeContext, complete_table, open_landed
from lakehouse.cli.output import json_option, show, write_json
from lakehouse.cli.spark_server import driver_for_command
from lakehouse.core.declaration.table import Table
from lakehouse.core.errors import Broken, Refused
from lakehouse.core.ingest.batches import ingest_app_id
from lakehouse.core.ingest.next_batch import choose_batch, repeat_batch
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

# Shown on a cluster, where it matters which work stays on the machine of the run.
_READ_HERE = (
    "; this process reads the files and stages them in parts of 16 MiB, Spark does the rest"
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
    """Show which files have landed for TABLE, and which of them it has loaded.

    If a table was re-created from a copy of its rows, its log does not record the loaded batches,
    and loading stops. Use --arrived to state that the table holds the rows of batches 1 to N, and
    none of later batches. This adds a commit without rows.
    """
    opened, wanted = open_landed(table, command="landing")
    if arrived is not None:
        with driver_for_command(opened.lake.settings):
            record_loaded(
                TableSession(lake=opened.lake, spark=connect(opened.lake.settings), table=wanted),
                arrived,
            )
    document = _document(opened, wanted)
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
        if sentence:
            show(
                sentence
                if sentence.startswith(("load of ", "landing of "))
                else f"{table}: {sentence}"
            )


def _document(opened: LakeContext, table: Table) -> dict[str, Any]:
    landing = table.landing
    batches = PlannedBatches(opened.lake.store, table.key, prefix=landing.prefix)
    ledger = batches.ledger()
    facts = opened.lake.facts(table.key)
    planned = 0 if ledger.newest is None else ledger.newest.number
    arrived = None if facts is None else facts.snapshot.transactions.get(ingest_app_id(table.key))
    loaded = (
        "the table's log does not record which of them are loaded"
        if facts
        else "the table does not exist yet"
    )
    if arrived is not None:
        loaded = f"the table's log records batch {arrived} as the last one loaded"
    try:
        unfinished = unfinished_batch(
            opened.lake, table, last_loaded(table, facts, ledger), ledger, batches
        )
        if unfinished is None:
            listing = landed_files(opened.lake.store, landing)
            plan = choose_batch(listing, ledger, landing, table.write, now_ms=now_ms())
        else:
            plan = repeat_batch(unfinished)
        following = plan.sentence
        if plan.batch and opened.lake.settings.spark.startswith(("sc://", "spark://")):
            following += _READ_HERE
    except (Broken, Refused) as error:
        following = str(error)  # the error that will stop the next load
    taken_in_ledger = sum(each.is_taken for each in ledger.seen.values())
    taken = taken_in_ledger + len(ledger.forgotten)
    file_count = count_of(taken, "file")
    batch_count = f"{planned} batch{'' if planned == 1 else 'es'}"
    return {
        "table": table.key,
        "prefix": landing.prefix,
        "planned": planned,
        "arrived": arrived,
        "files_taken": taken,
        "files_set_aside": len(ledger.seen) - taken_in_ledger,
        "quarantine_rows": quarantined_count(opened.lake, table.key),
        "set_aside": describe_set_aside(ledger, landing),
        "next": following,
        "after_load": None
        if landing.after_load == "keep"
        else _what_leaves(opened.lake, table, batches, facts),
        "sentence": f"{batch_count} of {file_count} below {landing.prefix} planned; {loaded}",
    }


def _what_leaves(
    lake: Lake, table: Table, batches: PlannedBatches, facts: TableFacts | None
) -> str:
    """Which files the next load removes from the landing area, and why others stay."""
    try:
        return f"with the next load {plan_landed(lake, table, batches, facts).sentence}"
    except Refused as error:
        return str(error)
