"""`lakehouse costs`: what the lake costs, by table, layer, owner or storage class."""

from datetime import datetime

import click

from lakehouse.base.clock import now_ms
from lakehouse.base.text import Document, usd_text
from lakehouse.cli.context import complete_table, open_declared
from lakehouse.cli.output import bytes_text, json_option, print_grid, show, write_json
from lakehouse.watch.costs.plan import GROUPS, costs_document, day_of


@click.command("costs", epilog="Example: lakehouse costs --by owner --since 2026-11-01")
@click.argument("table", required=False, shell_complete=complete_table)
@click.option(
    "--by",
    type=click.Choice(GROUPS),
    default="table",
    show_default=True,
    help="Group the costs.",
)
@click.option(
    "--since",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="DATE",
    help="Add up the costs of this day and later (default: the first of this month).",
)
@json_option
def costs_command(table: str | None, by: str, since: datetime | None, as_json: bool) -> None:
    """Show what the lake, or TABLE, costs: stored bytes, compute and requests.

    The costs are read from the table costs/chargeback. Does not start a JVM.
    """
    from lakehouse.watch.costs.run import read_charges

    context = open_declared()
    if table is not None:
        [chosen] = context.choose([table])
        table = chosen.key
    today = day_of(now_ms())
    first = today.replace(day=1) if since is None else since.date()
    recorded = read_charges(context.lake, since=first)
    charges = [each for each in recorded if table is None or each["x_table"] == table]
    document = costs_document(charges, by=by, since=first.isoformat())
    if as_json:
        write_json(document)
    elif not charges:
        show(
            f"no costs are recorded since {first}. The asset costs/chargeback records them after "
            "each inventory"
        )
    else:
        _print(document)


def _print(document: Document) -> None:
    heads = (document["by"], "stored", "storage USD", "compute USD", "requests USD", "USD")
    amounts = ("storage_usd", "compute_usd", "requests_usd", "usd")
    rows = [
        (each["name"], bytes_text(each["size_bytes"]), *(usd_text(each[name]) for name in amounts))
        for each in document["groups"]
    ]
    print_grid(heads, rows, numbers=heads[1:])
    show(f"{document['since']} to {document['until']}: {usd_text(document['usd'])} USD")
    if not document["stored_days"]:
        show("Storage is unknown: no inventory was charged. Use lakehouse inventory load")
