"""`lakehouse evolve` and `lakehouse rebuild`: make tables match their declarations."""

from collections.abc import Sequence
from typing import cast

import click

from lakehouse.base.errors import LakehouseError, Refused
from lakehouse.cli.context import (
    LakeContext,
    complete_table,
    open_declared,
    open_table,
    print_errors,
)
from lakehouse.cli.output import json_option, print_grid, show, tell, write_json
from lakehouse.cli.spark_server import driver_for_command
from lakehouse.declare.adopted import Adopted
from lakehouse.declare.table import Table
from lakehouse.evolve.plan.proposal import EvolutionOutcome
from lakehouse.evolve.plan.rebuild import RebuildOutcome, RebuildPlan, RebuildSource
from lakehouse.evolve.rebuild import declared_request, plan_rebuild, run_rebuild
from lakehouse.evolve.run import ApplyRequest, Proposal, apply_changes, propose
from lakehouse.lake.lake import TableSession
from lakehouse.lake.read_each_table import Found
from lakehouse.spark.session import connect


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


@click.command("rebuild", epilog="Example: lakehouse rebuild silver/flights --dry-run")
@click.argument("table", shell_complete=complete_table)
@click.option("--dry-run", is_flag=True, help="Show the plan only.")
@click.option(
    "--from",
    "source",
    type=click.Choice(("rows", "inputs")),
    help="rows: read TABLE's own rows; the default, and the only choice, for a table loaded from"
    " landed files. inputs: read the inputs of TABLE; the default for any other table.",
)
@json_option
def rebuild_command(table: str, dry_run: bool, source: str | None, as_json: bool) -> None:
    """Write all rows of TABLE again, in one commit, after the new rows are verified.

    Afterwards, TABLE has its declared columns and partitions. With --from rows, the rows stay the
    same, so downstream tables have no new rows to read. With --from inputs, all rows are computed
    again; use it if the keys, the write mode or the code have changed. TABLE keeps its history and
    its record of loaded batches.
    """
    context, declared_table = open_table(table)
    table = declared_table.key
    settings = context.lake.settings
    with driver_for_command(settings):
        if dry_run:
            session = TableSession(lake=context.lake, spark=connect(settings), table=declared_table)
            request = declared_request(session, cast("RebuildSource | None", source))
            plan = plan_rebuild(session, request, context.tables.values())
            if as_json:
                write_json({"table": table, "plan": plan.as_json()})
            else:
                _print_rebuild(plan.sentence, plan)
            return
        outcome = rebuild_table(context, declared_table, cast("RebuildSource | None", source))
    if as_json:
        write_json(outcome.as_json())
        return
    _print_rebuild(outcome.sentence, outcome.plan)


def rebuild_table(
    context: LakeContext, table: Table, source: "RebuildSource | None"
) -> RebuildOutcome:
    """Rebuilds a table, and reports it on the table's page in Dagster."""
    session = TableSession(lake=context.lake, spark=connect(context.lake.settings), table=table)
    request = declared_request(session, source)
    outcome = run_rebuild(session, request, context.tables.values(), tell=tell)
    report_to_dagster(context, table, outcome)
    return outcome


def _print_rebuild(sentence: str, plan: RebuildPlan) -> None:
    """Prints what is or would be done, and its effect on each downstream table."""
    show(f"{plan.table}: {sentence}")
    for effect in plan.readers:
        show(effect)


def report_to_dagster(context: LakeContext, table: Table, outcome: RebuildOutcome) -> None:
    """Reports the rebuild to Dagster, on the table's page."""
    from lakehouse.cli.dagster_runs import report_change

    has_new_rows = outcome.plan.rows != "same"
    report_change(context.lake, table, "rebuilt", outcome.sentence, has_new_rows=has_new_rows)
