"""`lakehouse evolve`: shows and applies the changes that make tables match declarations."""

from collections.abc import Sequence

import click

from lakehouse.cli.commands.rebuild import report_to_dagster
from lakehouse.cli.context import (
    LakeContext,
    complete_table,
    open_declared,
    print_errors,
)
from lakehouse.cli.output import json_option, print_grid, show, tell, write_json
from lakehouse.cli.spark_server import driver_for_command
from lakehouse.core.declaration.adopted import Adopted
from lakehouse.core.declaration.table import Table
from lakehouse.core.errors import LakehouseError, Refused
from lakehouse.core.evolution.proposal import EvolutionOutcome
from lakehouse.engine.evolution.apply import ApplyRequest, Proposal, apply_changes, propose
from lakehouse.engine.lake import TableSession
from lakehouse.engine.read_each_table import Found
from lakehouse.engine.spark.open_session import connect


@click.group("evolve", epilog="Example: lakehouse evolve plan bronze/orders")
def evolve_command() -> None:
    """Show and apply the changes that make tables match their declarations.

    Safe changes, for example a new column, are applied by the next run that writes the table.
    """


@evolve_command.command("plan", epilog="Example: lakehouse evolve plan bronze/orders")
@click.argument("tables", metavar="[TABLE]...", nargs=-1, shell_complete=complete_table)
@json_option
def plan_command(tables: tuple[str, ...], as_json: bool) -> int:
    """Show the changes that make each TABLE match its declaration.

    Without TABLE: all tables except adopted ones. For each change: how and when it is applied, and
    what it costs. Nothing is changed.
    """
    context = open_declared()
    chosen = [table for table in context.choose(tables) if tables or not _is_adopted(table)]
    with driver_for_command(context.lake.settings):
        readings = [_propose(context, table) for table in chosen]
    proposals = [each.value for each in readings if each.value is not None]
    if as_json:
        write_json([each.as_json() for each in proposals])
    else:
        _print(proposals)
    return print_errors(readings)


@evolve_command.command("apply", epilog="Example: lakehouse evolve apply bronze/orders")
@click.argument("tables", metavar="[TABLE]...", nargs=-1, shell_complete=complete_table)
@click.option(
    "--drop",
    multiple=True,
    metavar="COLUMN",
    help="Also drop this column of TABLE, which must not be declared. May be given several times.",
)
@json_option
def apply_command(tables: tuple[str, ...], drop: tuple[str, ...], as_json: bool) -> int:
    """Apply the changes of each TABLE that `lakehouse evolve plan` shows.

    Without TABLE: of all tables, inputs first. A table whose change is refused waits, and the
    others follow. Columns that are no longer declared are dropped only with --drop, by a rebuild
    from inputs, or by a rebuild of an Overwrite. A rebuild is one commit. Each change that needs
    only metadata is a commit of its own. If the command is killed, run it again: it continues where
    it stopped.
    """
    context = open_declared()
    chosen = context.choose(tables)
    if drop and len(chosen) != 1:
        raise Refused("evolve apply --drop: name one table")
    if not tables:
        chosen = [each for each in chosen if not _is_adopted(each) and context.lake.facts(each.key)]
    request = ApplyRequest(drop=drop, tables=tuple(context.tables.values()))
    with driver_for_command(context.lake.settings):
        readings = [_apply(context, table, request) for table in chosen]
    outcomes = [each.value for each in readings if each.value is not None]
    if as_json:
        write_json([outcome.as_json() for outcome in outcomes])
    else:
        for outcome in outcomes:
            for sentence in outcome.sentences:
                show(f"{outcome.table}: {sentence}")
    return print_errors(readings)


def _apply(context: LakeContext, table: Table, request: ApplyRequest) -> Found[EvolutionOutcome]:
    """The outcome for one table, or the error, so that the other tables still follow."""
    session = TableSession(lake=context.lake, spark=connect(context.lake.settings), table=table)
    try:
        outcome = apply_changes(session, request, tell)
    except LakehouseError as error:
        return Found(table=table, error=error)
    if outcome.rebuild is not None:
        report_to_dagster(context, table, outcome.rebuild)
    return Found(table=table, value=outcome)


def _is_adopted(table: Table) -> bool:
    return isinstance(table.write, Adopted)


def _propose(context: LakeContext, table: Table) -> Found[Proposal]:
    """The proposal for one table, or the error, so that the other tables are still shown."""
    session = TableSession(lake=context.lake, spark=connect(context.lake.settings), table=table)
    try:
        return Found(table=table, value=propose(session, tuple(context.tables.values())))
    except LakehouseError as error:
        return Found(table=table, error=error)


def _print(proposals: Sequence[Proposal]) -> None:
    rows = list[tuple[str, ...]]()
    for proposal in proposals:
        changes = () if proposal.plan is None else proposal.plan.changes
        for change in changes:
            kind = change.kind
            when = kind.consent.value
            rows.append((proposal.table, kind.title, kind.way.value, when, change.sentence))
    if rows:
        print_grid(("table", "change", "how", "when", "what"), rows)
    for proposal in proposals:
        if proposal.plan is None or not proposal.plan.changes:
            show(f"{proposal.table}: {proposal.sentence}")
        for note in proposal.notes:
            show(f"{proposal.table}: {note}")
