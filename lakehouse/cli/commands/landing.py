"""`lakehouse landing`: what has landed for a table, and which of it the table holds."""

from typing import Any

import click

from lakehouse.cli.context import LakeContext, complete_table, landing_of, open_table
from lakehouse.cli.output import json_option, show, write_json
from lakehouse.cli.spark_server import driver_for_command
from lakehouse.core.declaration.landing import Landing
from lakehouse.core.declaration.table import Table
from lakehouse.core.errors import Broken, Refused
from lakehouse.core.ingest.batches import choose_batch, ingest_app_id
from lakehouse.core.text import count_of
from lakehouse.engine.clock import now_ms
from lakehouse.engine.delta_log import TableFacts
from lakehouse.engine.journal.landed_batches import LandedBatches, landed_files
from lakehouse.engine.lake import Lake


@click.command(
    "landing",
    short_help="What has landed for a table, and which of it the table holds.",
    epilog="Examples: lakehouse landing bronze/orders; lakehouse landing bronze/orders --arrived 17",
)
@click.argument("table", shell_complete=complete_table)
@click.option("--arrived", type=click.IntRange(min=0), metavar="N", help="Write into the table's log that it holds batches 1 to N.")
@json_option
def landing_command(table: str, arrived: int | None, as_json: bool) -> None:
    """Show the landed batches of TABLE: how many were planned, and which of them its log says that it holds.

    A table that was made anew from a copy of its rows does not tell which batches it holds, and is not loaded any more. --arrived is a
    person's word for it: the rows of batches 1 to N are in the table, those of later batches are not. It adds a commit without rows.
    """
    opened, wanted = open_table(table)
    landing = landing_of(wanted, asked="landing")
    if arrived is not None:
        from lakehouse.engine.ingest.arrival import record_arrived
        from lakehouse.engine.spark.sessions import connect

        with driver_for_command(opened.lake.settings):
            record_arrived(opened.lake, connect(opened.lake.settings), wanted, arrived)
    document = _document(opened, wanted, landing)
    if as_json:
        write_json(document)
        return
    for sentence in (document["sentence"], document["next"], document["after_load"]):
        if sentence is not None:
            show(sentence if sentence.startswith(("load of ", "landing of ")) else f"{table}: {sentence}")


def _document(opened: LakeContext, table: Table, landing: Landing) -> dict[str, Any]:
    from lakehouse.engine.ingest.arrival import unfinished_batch

    batches = LandedBatches(opened.lake.store, table.key, prefix=landing.prefix)
    ledger = batches.ledger()
    facts = opened.lake.facts(table.key)
    planned = 0 if ledger.newest is None else ledger.newest.number
    arrived = None if facts is None else facts.snapshot.transactions.get(ingest_app_id(table.key))
    holds = "the table does not exist yet" if facts is None else f"its log says that it holds the batches up to {arrived}"
    if facts is not None and arrived is None:
        holds = "its log does not tell which of them it holds"
    try:
        unfinished = unfinished_batch(opened.lake, table, facts, ledger, batches)
        listing = landed_files(opened.lake.store, landing)
        following = choose_batch(listing, ledger, landing, table.write, unfinished=unfinished, now_ms=now_ms()).sentence
    except (Broken, Refused) as error:
        following = str(error)  # what the next load stops with
    known = sum(each.is_taken for each in ledger.seen.values())
    taken = known + len(ledger.forgotten)
    return {
        "table": table.key,
        "prefix": landing.prefix,
        "planned": planned,
        "arrived": arrived,
        "files_taken": taken,
        "files_set_aside": len(ledger.seen) - known,
        "next": following,
        "after_load": None if landing.after_load == "keep" else _what_goes(opened.lake, table, batches, facts),
        "sentence": f"{planned} batch{'' if planned == 1 else 'es'} of {count_of(taken, 'file')} below {landing.prefix} planned; {holds}",
    }


def _what_goes(lake: Lake, table: Table, batches: LandedBatches, facts: TableFacts | None) -> str:
    """The files that leave the landing area with the next load, and why others stay, as a sentence."""
    from lakehouse.engine.ingest.retire import plan_landed

    try:
        return f"with the next load {plan_landed(lake, table, batches, facts).sentence}"
    except Refused as error:
        return str(error)
