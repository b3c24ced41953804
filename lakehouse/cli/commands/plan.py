"""`lakehouse plan`: what each compaction would do, and why, without doing it."""

from collections.abc import Sequence
from typing import Any

import click

from lakehouse.cli.context import (
    address_field,
    cell_of,
    complete_table,
    find_undeclared,
    open_tables,
    show_addresses,
    show_undeclared,
    tell_errors,
)
from lakehouse.cli.output import (
    attributes,
    bytes_text,
    count_text,
    json_option,
    print_grid,
    show,
    write_json,
)
from lakehouse.core.compaction.plan import CompactionPlan
from lakehouse.core.declaration.table import Table
from lakehouse.core.declaration.undeclared_tables import undeclared_sentence
from lakehouse.core.scheduling.ranking import Decision
from lakehouse.core.scheduling.table_state import net_benefit_cells
from lakehouse.engine.each_table import Found
from lakehouse.engine.fleet_from_logs import read_fleet


@click.command("plan", epilog="Example: lakehouse plan bronze/weather --json")
@click.argument("tables", metavar="[TABLE|ADDRESS]...", nargs=-1, shell_complete=complete_table)
@click.option("-v", "--verbose", is_flag=True, help="Also show the files of every bin.")
@json_option
def plan_command(tables: tuple[str, ...], verbose: bool, as_json: bool) -> int:
    """Show what each compaction would do, and why; no JVM.

    Nothing is changed. Tables (default: all) are shown in the order in which the sensor would
    compact them: by the daily benefit for readers, divided by the cost. TABLE may also be the
    ADDRESS of a Delta table that is not declared: a folder (/data/orders, ./orders) or
    s3://bucket/orders. Reads are counted by the commits of downstream tables. This command does not
    know which runs are in progress, nor how long tables have waited.
    """
    opened, chosen = open_tables(tables)
    reading = read_fleet(opened.lake, opened.tables, chosen)
    plans = reading.plans
    decisions = reading.decisions
    undeclared = () if tables else find_undeclared(opened, plans)
    if as_json:
        fleet = {
            decision.table: fleet_document(decision, rank=place)
            for place, decision in enumerate(decisions, start=1)
        }
        declared = [
            {
                **plan_document(each),
                "declared": each.table.key not in opened.by_address,
                "fleet": fleet[each.table.key],
            }
            for each in plans
        ]
        write_json([*declared, *map(_undeclared_document, undeclared)])
    else:
        print_plans(plans, verbose=verbose, decisions=decisions)
        show_undeclared(undeclared)
    return tell_errors(plans)


def plan_document(reading: Found[CompactionPlan]) -> dict[str, Any]:
    """The JSON document of a plan. Without a plan, `version` is null and nothing is removed."""
    if reading.value:
        return {**reading.value.as_json(), **address_field(reading.table)}
    unknown = dict.fromkeys(
        (
            *("version", "engine", "why_not_deltalake", "statement", "target_file_bytes"),
            *("verify", "verify_sentence", "estimate"),
        )
    )
    nothing = {
        **dict.fromkeys(("files_removed", "files_added", "bytes_removed", "files_left"), 0),
        "bins": [],
    }
    return {
        "table": reading.table.key,
        **attributes(reading, "reason", "sentence"),
        **unknown,
        **nothing,
        **address_field(reading.table),
    }


def fleet_document(decision: Decision, *, rank: int) -> dict[str, Any]:
    """The JSON document of a table's rank in the fleet (docs/reference/json.md)."""
    digits = {"benefit_usd_per_day": 9, "cost_usd": 9, "ratio": 4}
    gain = decision.net_benefit
    money = {
        name: round(getattr(gain, name), places) if gain else None
        for name, places in digits.items()
    }
    return {
        "rank": rank,
        "request": decision.request,
        "reason": decision.reason.name,
        "sentence": decision.sentence,
        **money,
    }


def _undeclared_document(table: Table) -> dict[str, Any]:
    why = {"reason": "NOT_DECLARED", "sentence": undeclared_sentence([table.key])}
    nothing = dict.fromkeys(("rank", "benefit_usd_per_day", "cost_usd", "ratio"))
    return {
        **plan_document(Found(table=table)),
        **why,
        "declared": False,
        "fleet": {**nothing, **why, "request": False},
    }


def print_plans(
    readings: Sequence[Found[CompactionPlan]], *, verbose: bool, decisions: Sequence[Decision] = ()
) -> None:
    """Prints the plans, with the sensor's decisions if given; `verbose` adds bins and files."""
    decided = {decision.table: decision for decision in decisions}
    places = {table: place for place, table in enumerate(decided)}
    ordered = (
        sorted(readings, key=lambda each: places[each.table.key]) if decided else list(readings)
    )
    money = ("USD a day", "USD", "ratio") if decided else ()
    heads = (
        "table",
        "version",
        "files",
        "into",
        "bytes",
        *money,
        "reason",
        *(("sensor",) if decided else ()),
        "",
    )
    print_grid(
        heads,
        [_row(each, decided.get(each.table.key)) for each in ordered],
        numbers=heads[1 : 5 + len(money)],
    )
    show_addresses(each.table for each in ordered)
    for decision in decisions if verbose else ():
        show(f"{decision.table}: sensor: {decision.sentence}")
    for plan in [each.value for each in ordered if each.value and each.value.bins and verbose]:
        show(f"{plan.table}: {plan.estimate.sentence}; {plan.verify_sentence}")
        for bin_ in plan.bins:
            where = (
                ", ".join(f"{column}={value}" for column, value in bin_.partition) or "whole table"
            )
            show(f"{plan.table}, {where}: {len(bin_.files)} files, {bytes_text(bin_.size_bytes)}")
            for file in bin_.files:
                show(f"  {bytes_text(file.size_bytes):>10}  {file.path}")


def _row(reading: Found[CompactionPlan], decision: Decision | None) -> tuple[str, ...]:
    if plan := reading.value:
        counts = (
            str(plan.version),
            count_text(plan.files_removed),
            count_text(plan.files_added),
            bytes_text(plan.bytes_removed),
        )
        reason = plan.reason.name
        sentence = plan.sentence
    else:
        counts = ("-",) * 4
        reason = reading.reason
        sentence = cell_of(reading)
    if decision is None:
        return (reading.table.key, *counts, reason, sentence)
    return (
        reading.table.key,
        *counts,
        *net_benefit_cells(decision.net_benefit),
        reason,
        decision.reason.name,
        sentence,
    )
