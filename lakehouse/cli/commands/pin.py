"""`lakehouse pin`: keeps a version of a table for a reader, or lists the kept versions (pins)."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from lakehouse.cli.commands.pause import until_ms_of
from lakehouse.cli.context import LakeContext, complete_table, open_declared
from lakehouse.cli.output import json_option, print_grid, show, time_text, write_json
from lakehouse.core.declaration.table import Table
from lakehouse.core.errors import Refused
from lakehouse.core.text import count_of
from lakehouse.core.vacuum.facts import Pin
from lakehouse.engine.clock import now_ms
from lakehouse.engine.vacuum.kept_versions import pins, remove_pin, set_pin

# Source: delta-io/delta v4.4.0, DeltaSQLConf.
_SPARK_SETTING = (
    "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration=false"
)


@click.command(
    "pin",
    epilog="Example: lakehouse pin silver/flights --version 12 --reader powerbi --until 30d",
)
@click.argument("table", required=False, shell_complete=complete_table)
@click.option("--version", type=click.IntRange(min=0), help="The version to keep.")
@click.option("--reader", help="The reader of this version, one of the table's Vacuum.readers.")
@click.option("--until", metavar="TIME", help="End of the pin: 2026-12-01T06:00Z, or 6h, 30d.")
@click.option("--remove", "until", flag_value="", help="Instead of --until: remove the pin.")
@json_option
def pin_command(
    table: str | None, version: int | None, reader: str | None, until: str | None, as_json: bool
) -> None:
    """Keep a version of TABLE for a reader: no vacuum of this lake deletes its files.

    The pin ends at --until, or if TABLE is created again or no longer declares the reader. Without
    --version, list the pins of TABLE, or of all tables.
    """
    context = open_declared()
    sentences = list[str]()
    if version is None and (reader is not None or until is not None):
        raise Refused("pin: --version is missing. Use --version N with --reader NAME")
    if version is not None:
        sentences = _change(context, table, version, reader, until)
    shown = context.choose([] if table is None else [table])
    documents = [
        _document(context, each, pin)
        for each in shown
        for pin in pins(context.lake.store, each.key)
    ]
    if as_json:
        write_json([{**document, "notes": sentences} for document in documents])
        return
    for sentence in sentences:
        show(sentence)
    if version is None:
        _print(documents)


def _change(
    context: LakeContext, key: str | None, version: int, reader: str | None, until: str | None
) -> list[str]:
    """Sets the pin, or removes it if `until` is empty (--remove). Returns sentences to print."""
    if key is None or not reader or until is None:
        raise Refused(
            "pin: a value is missing. Use lakehouse pin TABLE --version N --reader NAME --until "
            "TIME, or --remove instead of --until"
        )
    [table] = context.choose([key])
    if not until:
        was_pinned = remove_pin(context.lake.store, key, version=version, reader=reader)
        state = "is no longer pinned" if was_pinned else "was not pinned"
        return [f"{key}: version {version} {state} by {reader}"]
    until_ms = until_ms_of(until, now_ms())
    kept = set_pin(context.lake, table, version=version, reader=reader, until_ms=until_ms)
    sentences = [
        f"{key}: version {version} ({count_of(len(kept.files), 'file')}) is {kept.why}",
        f"once its retention has passed, Spark reads the version only with {_SPARK_SETTING}",
    ]
    # Before the pin ends, Delta may delete log files that the version needs.
    if kept.log_until_ms is not None and kept.log_until_ms < until_ms:
        sentences.append(kept.log_sentence)
    return sentences


def _document(context: LakeContext, table: Table, pin: Pin) -> dict[str, Any]:
    """The JSON document of a pin. `why_not` is the reason why it has no effect, or empty."""
    facts = context.lake.facts(table.key)
    why_not = ""
    if pin.until_ms <= now_ms():
        why_not = "the pin has ended"
    elif pin.reader not in table.vacuum.readers:
        why_not = f"Vacuum.readers does not name {pin.reader}"
    elif facts is None or facts.snapshot.table_id != pin.table_id:
        why_not = "the table was created again after the pin"
    return {**asdict(pin), "holds": not why_not, "why_not": why_not}


def _print(documents: Sequence[dict[str, Any]]) -> None:
    rows = [
        (
            each["table"],
            str(each["version"]),
            each["reader"],
            time_text(each["until_ms"]),
            "holds" if each["holds"] else f"does not hold: {each['why_not']}",
        )
        for each in documents
    ]
    if not rows:
        show("no version is pinned")
        return
    print_grid(("table", "version", "reader", "until", ""), rows, numbers=("version",))
