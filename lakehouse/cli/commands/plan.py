"""`lakehouse plan`: what each compaction would do, and why, without doing it."""

from collections.abc import Sequence

import click

from lakehouse.cli.context import (
    cell_of,
    complete_table,
    open_tables,
    print_errors,
)
from lakehouse.cli.output import (
    bytes_text,
    count_text,
    json_option,
    print_grid,
    show,
    write_json,
)
from lakehouse.core.compaction.plan import CompactionPlan
from lakehouse.core.scheduling.table_decision import Decision
from lakehouse.core.scheduling.table_state import net_benefit_cells
from lakehouse.engine.fleet_from_logs import read_fleet
from lakehouse.engine.read_each_table import Found
from lakehouse.engine.table_documents import fleet_document, plan_document


@click.command("plan", epilog="Example: lakehouse plan bronze/weather --json")
@click.argument("tables", metavar="[TABLE|ADDRESS]...", nargs=-1, shell_complete=complete_table)
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Also show the sensor's sentences, the estimates, and the files of every bin.",
)
@json_option
def plan_command(tables: tuple[str, ...], verbose: bool, as_json: bool) -> int:
    """Show what each compaction would do, and why. Does not start a JVM.

    Nothing is changed. Except with --json, tables (default: all) are in the order of the compaction
    sensor: due tables first, then by the daily benefit for readers, divided by the cost. A table's
    reads are estimated: one for each commit of a downstream table, plus the declared reads_per_day.
    This command does not know which runs are in progress, nor how long tables have waited. TABLE
    may also be the ADDRESS of a Delta table that is not declared: a folder (/data/orders, ./orders)
    or s3://bucket/orders.
    """
    context, chosen = open_tables(tables)
    reading = read_fleet(context.lake, context.tables, chosen)
    plans = reading.plans
    decisions = reading.decisions
    if as_json:
        fleet = {
            decision.table: fleet_document(decision, rank=rank)
            for rank, decision in enumerate(decisions, start=1)
        }
        documents = [
            {
                **plan_document(each),
                "declared": each.table.key not in context.by_address,
                "fleet": fleet[each.table.key],
            }
            for each in plans
        ]
        write_json(documents)
    else:
        print_plans(plans, verbose=verbose, decisions=decisions)
    return print_errors(plans)


def print_plans(
    readings: Sequence[Found[CompactionPlan]], *, verbose: bool, decisions: Sequence[Decision] = ()
) -> None:
    """Prints the plans. With `decisions`, adds the sensor's figures, and sorts by its order.

    `verbose` adds the sensor's sentences, the estimates, and the files of each bin.
    """
    decision_of = {decision.table: decision for decision in decisions}
    number_heads = ("version", "files", "into", "bytes")
    other_heads = ("reason", "")
    ordered = list(readings)
    if decisions:
        number_heads += ("benefit USD/day", "cost USD", "benefit/cost")
        other_heads = ("reason", "sensor", "")
        ranks = {table: rank for rank, table in enumerate(decision_of)}
        ordered.sort(key=lambda each: ranks[each.table.key])
    print_grid(
        ("table", *number_heads, *other_heads),
        [_row(each, decision_of.get(each.table.key)) for each in ordered],
        numbers=number_heads,
    )
    if not verbose:
        return
    for decision in decisions:
        show(f"{decision.table}: sensor: {decision.sentence}")
    for each in ordered:
        if each.value and each.value.bins:
            _print_bins(each.value)


def _print_bins(plan: CompactionPlan) -> None:
    show(f"{plan.table}: {plan.estimate.sentence}; {plan.verify_sentence}")
    for bin_ in plan.bins:
        partition = ", ".join(f"{column}={value}" for column, value in bin_.partition)
        count = f"{len(bin_.files)} files, {bytes_text(bin_.size_bytes)}"
        show(f"{plan.table}, {partition or 'whole table'}: {count}")
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
