"""`lakehouse costs`: the costs of the lake, by table and kind, and the savings of its upkeep."""

from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import click

from lakehouse.cli.context import LakeContext, complete_table, open_declared
from lakehouse.cli.output import json_option, print_grid, show, tell, write_json
from lakehouse.cli.spark_server import driver_for_command
from lakehouse.core.costs.charges import Charge, CostSum, sum_by
from lakehouse.core.costs.exact_amounts import day_of, month_start
from lakehouse.core.costs.summary import (
    CostSummary,
    known_days,
    summarize,
    usd_number,
    usd_text,
)
from lakehouse.core.report.money import most_expensive_tables
from lakehouse.core.text import count_of
from lakehouse.engine.clock import now_ms


@click.command("costs", epilog="Example: lakehouse costs --by owner --since 2026-11-01")
@click.argument("table", required=False, shell_complete=complete_table)
@click.option(
    "--by",
    type=click.Choice(["table", "layer", "owner", "kind"]),
    default="table",
    show_default=True,
    help="Group the costs.",
)
@click.option(
    "--since",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="DATE",
    help="Group only the costs of this day and later (default: the first of this month).",
)
@click.option(
    "--bill",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Instead, split the rows of this FOCUS export (.parquet or .csv) by table, and write them"
    " to costs/chargeback.",
)
@click.option(
    "--resource",
    metavar="NAME",
    help="With --bill: split the rows whose ResourceId names this resource (default: the bucket).",
)
@json_option
def costs_command(
    table: str | None,
    by: str,
    since: datetime | None,
    bill: Path | None,
    resource: str | None,
    as_json: bool,
) -> None:
    """Show what the lake, or TABLE, costs: stored bytes, compute and requests.

    The costs of past days are read from the table costs/chargeback. Today, and recent days that it
    lacks, are estimated. With --bill, the rows of a bill are split by the bytes that each table
    stored, and the parts of a row add up to the row. Only --bill starts a JVM.
    """
    context = open_declared()
    if bill is not None:
        _allocate(context, bill, resource or context.lake.store.bucket, as_json=as_json)
        return
    from lakehouse.engine.costs.read_ledger import read_ledger, read_savings

    chosen = {each.key: each for each in context.choose([table] if table else [])}
    now = now_ms()
    first = month_start(now) if since is None else min(since.date(), month_start(now))
    reading = read_ledger(context.lake, context.tables, since=first, now_ms=now)
    for key, why in reading.unread.items():
        tell(f"{key}: its operations are not counted, because they cannot be read: {why}")
    charges = [each for each in reading.charges if table is None or each.table == table]
    today = day_of(now)
    amounts = read_savings(context.lake, chosen, charges, now_ms=now)
    days = known_days(reading.charges, today=today)
    summary = summarize(charges, today=today, amounts=amounts, days=days)
    group_since = today.replace(day=1) if since is None else since.date()
    groups = sum_by((each for each in charges if each.day >= group_since), by)
    if as_json:
        group_documents = [{"name": each.name, "usd": usd_number(each.usd)} for each in groups]
        document: dict[str, Any] = {**summary.as_json(), "by": by, "groups": group_documents}
        write_json({**document, "since": group_since.isoformat()})
        return
    _print(summary, charges)
    _print_groups(groups, by, group_since)
    for each in most_expensive_tables(reading.charges, context.tables, today=today):
        if table is None or each.table == table:
            verb = "costs the most," if table is None else "costs"
            per_month = usd_text(Decimal(each.usd_per_month))
            show(f"{each.table} {verb} {per_month} USD a month: {each.why}")
            show(f"{each.advice}: {each.command}")
            break


def _allocate(context: LakeContext, bill: Path, resource: str, *, as_json: bool) -> None:
    from lakehouse.engine.costs.bills import allocate_bill

    with driver_for_command(context.lake.settings):
        allocated = allocate_bill(context.lake, context.tables, bill, resource=resource)
    if as_json:
        write_json(allocated.as_json())
    else:
        show(
            f"{bill}: {count_of(allocated.billed_rows, 'row')} of {resource!r} split into"
            f" {count_of(allocated.row_count, 'row')} of costs/chargeback, in total"
            f" {usd_text(allocated.billed)} {allocated.currency}"
        )


def _print(summary: CostSummary, charges: Sequence[Charge]) -> None:
    forecast = "unknown" if summary.forecast_usd is None else usd_text(summary.forecast_usd)
    show(
        f"this week {usd_text(summary.week_usd)} USD, this month {usd_text(summary.month_usd)} USD"
        f" ({count_of(summary.day_count, 'day')} known), forecast {forecast} USD"
    )
    if not any(each.kind == "storage" for each in charges):
        show("Storage is unknown: there is no inventory. Use lakehouse inventory scan")
    rows = [
        (each.name, "unknown" if each.usd is None else usd_text(each.usd), each.formula)
        for each in summary.amounts
    ]
    print_grid(("amount", "USD", "formula"), rows, numbers=("USD",))


def _print_groups(groups: Sequence[CostSum], by: str, since: date) -> None:
    print_grid(
        (by, f"USD since {since}"),
        [(each.name, usd_text(each.usd)) for each in groups],
        numbers=(f"USD since {since}",),
    )
