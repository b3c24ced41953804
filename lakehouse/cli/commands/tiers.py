"""`lakehouse tiers`: tags removed files, which a lifecycle rule moves to cheaper storage."""

import json
from typing import Any

import click

from lakehouse.cli.context import complete_table, error_cell, open_declared, print_errors
from lakehouse.cli.output import bytes_text, json_option, print_grid, show, write_json
from lakehouse.core.errors import LakehouseError
from lakehouse.core.tiers.lifecycle import tier_rule
from lakehouse.core.tiers.plan import TierPlan
from lakehouse.engine.read_each_table import Found
from lakehouse.engine.tiers.run import run
from lakehouse.engine.vacuum.lake_facts import LakeFacts


@click.command("tiers", epilog="Example: lakehouse tiers bronze/weather --dry-run")
@click.argument(
    "tables", metavar="TABLE...", nargs=-1, required=True, shell_complete=complete_table
)
@click.option("--dry-run", is_flag=True, help="List every file that would be tagged, and tag none.")
@json_option
def tiers_command(tables: tuple[str, ...], dry_run: bool, as_json: bool) -> int:
    """Tag removed files that TABLE keeps for more than a month, for a cheaper storage class.

    Works only on S3. The printed lifecycle rule moves the tagged files to Infrequent Access, then
    to Glacier. Add it to the rules of the bucket once. A file that is needed again loses its tag.
    """
    context = open_declared()
    lake = context.lake
    chosen = context.choose(tables)
    facts = LakeFacts(lake, [*context.tables.values()], wanted={table.key for table in chosen})
    readings = list[Found[TierPlan]]()
    for table in chosen:
        try:
            value = run(facts, table, dry_run=dry_run)
            readings.append(Found(table=table, value=value))
        except LakehouseError as error:
            readings.append(Found(table=table, error=error))
    documents = [_document(each) for each in readings]
    if as_json:
        write_json({"tables": documents})
        return print_errors(readings)
    rows = [(each["table"], bytes_text(each.get("bytes", 0)), _text(each)) for each in documents]
    print_grid(("table", "bytes", ""), rows, numbers=("bytes",))
    for each in documents:
        for name in each.get("tag", ()) if dry_run else ():
            show(f"{each['table']}/{name}")
        for name in each.get("untag", ()):
            show(f"{each['table']}/{name} {'would lose' if dry_run else 'has lost'} the tag")
    show("This rule moves the tagged files. Add it to the lifecycle rules of the bucket:")
    for line in json.dumps(tier_rule(lake.store.prefix), indent=2).splitlines():
        show(line)
    return print_errors(readings)


def _document(reading: Found[TierPlan]) -> dict[str, Any]:
    if reading.value is not None:
        return reading.value.as_json()
    return {"table": reading.table.key, "reason": reading.reason, "sentence": reading.sentence}


def _text(document: dict[str, Any]) -> str:
    has_plan = "version" in document or document["reason"] == "NO_TABLE"
    return document["sentence"] if has_plan else error_cell(document["reason"].capitalize())
