"""`lakehouse evolve` and `lakehouse rebuild`: make tables match their declarations."""

from collections.abc import Sequence
from typing import Any

import click

from lakehouse.base.errors import Refused
from lakehouse.cli.context import (
    complete_table,
    open_declared,
    open_table,
    print_errors,
    table_argument,
)
from lakehouse.cli.dagster_events import report_change
from lakehouse.cli.output import flag, json_option, print_grid, show, tell, write_json
from lakehouse.cli.server_command import driver_for_command, table_session
from lakehouse.declare.table import Table
from lakehouse.evolve.plan.rebuild import Proposal, RebuildOutcome, RebuildPlan
from lakehouse.evolve.rebuild import plan_rebuild, run_rebuild
from lakehouse.evolve.run import apply_changes, declared_request, propose
from lakehouse.lake.lake import TableSession, attempt
from lakehouse.spark.session import connect


@click.command("evolve", epilog="Example: lakehouse evolve bronze/orders --dry-run")
@click.argument("tables", metavar="[TABLE]...", nargs=-1, shell_complete=complete_table)
@flag("--dry-run", help="Show each change, how and when it is made, and what it costs.")
@click.option(
    "--drop",
    multiple=True,
    metavar="COLUMN",
    help="Also drop this column of TABLE, which must not be declared. May be given several times.",
)
@json_option
def evolve_command(
    tables: tuple[str, ...], dry_run: bool, drop: tuple[str, ...], as_json: bool
) -> int:
    """Make the changes by which each TABLE matches its declaration.

    Without TABLE: of all tables except adopted ones, inputs first. A table whose change is refused
    waits, and the others follow. Columns that are no longer declared are dropped only with --drop,
    by a rebuild from inputs, or by a rebuild of an Overwrite. A rebuild is one commit. Each change
    that needs only metadata is a commit of its own. If the command is killed, run it again: it
    continues where it stopped.
    """
    context = open_declared()
    chosen = context.choose(tables)
    if drop and len(chosen) != 1:
        raise Refused("evolve --drop: name one table")
    if not tables:
        chosen = [table for table in chosen if not table.adopted and context.lake.facts(table.key)]
    declared = tuple(context.tables.values())

    def call(table: Table) -> Any:
        spark = connect(context.lake.settings)
        session = TableSession(lake=context.lake, spark=spark, table=table)
        if dry_run:
            return propose(session, declared, drop=drop)
        outcome = apply_changes(session, declared, tell, drop=drop)
        if outcome.rebuild is not None:
            _report(session, outcome.rebuild)
        return outcome

    with driver_for_command(context.lake.settings):
        readings = [attempt(table, call) for table in chosen]
    values = [each.value for each in readings if each.value is not None]
    if as_json:
        write_json([each.as_json() for each in values])
    elif dry_run:
        _print(values)
    else:
        for outcome in values:
            for sentence in outcome.sentences:
                show(f"{outcome.left.table}: {sentence}")
    return print_errors(readings)


def _print(proposals: Sequence[Proposal]) -> None:
    rows = list[tuple[str, ...]]()
    for proposal in proposals:
        for change in proposal.plan.changes:
            kind = change.kind
            when = kind.consent.value
            rows.append((proposal.plan.table, kind.title, kind.way.value, when, change.sentence))
    if rows:
        print_grid(("table", "change", "how", "when", "what"), rows)
    for proposal in proposals:
        if not proposal.plan.changes:
            show(f"{proposal.plan.table}: {proposal.plan.sentence}")
        for note in proposal.notes:
            show(f"{proposal.plan.table}: {note}")


@click.command("rebuild", epilog="Example: lakehouse rebuild silver/flights --dry-run")
@table_argument
@flag("--dry-run", help="Show the plan only.")
@json_option
def rebuild_command(table: str, dry_run: bool, as_json: bool) -> None:
    """Write all rows of TABLE again, in one commit, after the new rows are verified.

    Afterwards, TABLE has its declared columns and partitions. The rows of a table that is loaded
    from landed files stay the same, so downstream tables have no new rows to read. The rows of any
    other table are computed from its inputs again; use it if the keys, the write mode or the code
    have changed. TABLE keeps its history and its record of loaded batches.
    """
    context, declared_table = open_table(table)
    table = declared_table.key
    with table_session(context.lake, declared_table) as session:
        request = declared_request(session)
        if dry_run:
            plan = plan_rebuild(session, request, context.tables.values()).plan
            if as_json:
                write_json({"table": table, "plan": plan.as_json()})
            else:
                _print_rebuild(plan.sentence, plan)
            return
        outcome = run_rebuild(session, request, context.tables.values(), tell=tell)
        _report(session, outcome)
    if as_json:
        write_json(outcome.as_json())
        return
    _print_rebuild(outcome.sentence, outcome.plan)


def _print_rebuild(sentence: str, plan: RebuildPlan) -> None:
    """Prints what is or would be done, and its effect on each downstream table."""
    show(f"{plan.table}: {sentence}")
    for effect in plan.readers:
        show(effect)


def _report(session: TableSession, outcome: RebuildOutcome) -> None:
    """Reports the rebuild to Dagster, on the table's page."""
    has_new_rows = outcome.plan.rows != "same"
    report_change(
        session.lake, session.table, "rebuilt", outcome.sentence, has_new_rows=has_new_rows
    )
