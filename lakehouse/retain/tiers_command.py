"""`lakehouse tiers`: tags removed files, which a lifecycle rule moves to cheaper storage."""

import json

import click

from lakehouse.base.errors import LakehouseError
from lakehouse.cli.context import complete_table, open_declared, print_errors
from lakehouse.cli.output import bytes_text, json_option, print_grid, show, write_json
from lakehouse.lake.read_each_table import Found
from lakehouse.retain.plan.tiers import TierPlan
from lakehouse.retain.run.tiers import run
from lakehouse.vacuum.lake_facts import LakeFacts
from lakehouse.vacuum.plan.lifecycle import tier_rule


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
    plans = [each.value for each in readings if each.value is not None]
    if as_json:
        others = [
            {"table": each.table.key, "reason": each.reason, "sentence": each.sentence}
            for each in readings
            if each.value is None
        ]
        write_json({"tables": [*(plan.as_json() for plan in plans), *others]})
        return print_errors(readings)
    rows = [(plan.table, bytes_text(plan.size_bytes), plan.sentence) for plan in plans]
    print_grid(("table", "bytes", ""), rows, numbers=("bytes",))
    for plan in plans:
        for name in plan.tag if dry_run else ():
            show(f"{plan.table}/{name}")
        for name in plan.untag:
            show(f"{plan.table}/{name} {'would lose' if dry_run else 'has lost'} the tag")
    show("This rule moves the tagged files. Add it to the lifecycle rules of the bucket:")
    show(json.dumps(tier_rule(lake.store.prefix), indent=2))
    return print_errors(readings)
