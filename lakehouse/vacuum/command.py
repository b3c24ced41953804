"""`lakehouse vacuum`: deletes files that are no longer needed, or only lists them."""

import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import click

from lakehouse.base.errors import Broken
from lakehouse.base.operation import VACUUM_MODES
from lakehouse.base.text import Document
from lakehouse.cli.context import complete_table, open_declared, print_errors
from lakehouse.cli.dagster_events import report_to_dagster
from lakehouse.cli.output import (
    bytes_text,
    count_text,
    flag,
    json_option,
    print_figures,
    print_grid,
    show,
    tell,
    working,
    write_json,
)
from lakehouse.cli.server_command import driver_on_demand
from lakehouse.compact.assess import refuse_held
from lakehouse.declare.table import Table
from lakehouse.lake.lake import Found, Lake, attempt
from lakehouse.vacuum import run
from lakehouse.vacuum.facts import LakeFacts
from lakehouse.vacuum.plan.vacuum import VacuumOutcome, VacuumPlan

if TYPE_CHECKING:
    from lakehouse.assets.events import Event, Reporter


@click.command("vacuum", epilog="Example: lakehouse vacuum bronze/weather --dry-run")
@click.argument("tables", metavar="[TABLE]...", nargs=-1, shell_complete=complete_table)
@flag("--dry-run", help="List every file that would be deleted, and delete none.")
@click.option(
    "--mode",
    type=click.Choice(VACUUM_MODES, case_sensitive=False),
    help="Use this mode. Default: the cheapest mode that is valid for the table now.",
)
@flag("--anyway", help="Also vacuum a table that is paused or opts out.")
@json_option
def vacuum_command(
    tables: tuple[str, ...], dry_run: bool, mode: str | None, anyway: bool, as_json: bool
) -> int:
    """Delete files that are no longer needed. With --dry-run, only list them.

    These are files of each TABLE (default: all) that no version within the table's retention needs.
    They are selected from the table's log, and in some modes from an inventory or a listing of the
    storage. Delta (Spark or deltalake) selects files on its own, and a file is deleted only if it
    is in both selections.
    """
    context = open_declared()
    lake = context.lake
    chosen = context.choose(tables)
    facts = LakeFacts(lake, [*context.tables.values()], wanted={table.key for table in chosen})
    with driver_on_demand(lake.settings) as session:

        def vacuum(table: Table) -> VacuumPlan | VacuumOutcome | None:
            with working(f"vacuum of {table.key}"):
                if dry_run:
                    return run.rehearse(facts, session, table, mode=mode)  # type: ignore[arg-type]
                if facts.log(table.key) is None:
                    return None
                if not anyway:
                    refuse_held(lake, table, "vacuum")
                return run.vacuum(facts, session, table, mode=mode)  # type: ignore[arg-type]

        readings = [_attempt(table, vacuum) for table in chosen]
    _report(lake, readings)
    documents = [_document(each) for each in readings]
    if as_json:
        write_json(documents)
    else:
        _print(documents, dry_run=dry_run)
    exit_code = print_errors(readings)
    for each in documents:
        if failed := each.get("failed"):  # the files that could not be deleted
            name, why = next(iter(failed.items()))
            tell(
                f"{Broken.__name__}: vacuum of {each['table']}: files that could not be "
                f"deleted: {count_text(len(failed))}, for example {name}: {why}"
            )
            exit_code = Broken.exit_code
    return exit_code


def _attempt(
    table: Table, vacuum: Callable[[Table], VacuumPlan | VacuumOutcome | None]
) -> Found[VacuumPlan | VacuumOutcome]:
    """The plan or outcome of a table, or its error: the other tables go on."""
    try:
        return attempt(table, vacuum)
    except Exception as error:
        tell(traceback.format_exc())
        defect = Broken(f"a defect of this program: {type(error).__name__}: {error}")
        return Found(table=table, error=defect)


def _report(lake: Lake, readings: Sequence[Found[VacuumPlan | VacuumOutcome]]) -> None:
    """Reports to Dagster what the assets of the tables would have reported."""
    outcomes = [
        (each.table, each.value) for each in readings if isinstance(each.value, VacuumOutcome)
    ]

    def events(_: "Reporter") -> "Iterable[Event]":
        from lakehouse.vacuum.asset import vacuum_events

        for table, outcome in outcomes:
            yield from vacuum_events(table, outcome)

    if outcomes:
        report_to_dagster(lake.settings, "the vacuum is done", events)


def _document(reading: Found[VacuumPlan | VacuumOutcome]) -> Document:
    if reading.value is not None:
        return reading.value.as_json()
    return {
        "table": reading.table.key,
        "reason": reading.reason,
        "sentence": reading.sentence,
    }


def _print(documents: Sequence[Document], *, dry_run: bool) -> None:
    rows = [
        (
            each["table"],
            each.get("mode", "-"),
            count_text(each.get("files")),
            bytes_text(each.get("bytes")),
            each["sentence"] if "files" in each else each["reason"],
        )
        for each in documents
    ]
    numbers = ("files", "bytes")
    print_grid(("table", "mode", *numbers, ""), rows, numbers=numbers)
    for each in documents:
        if each.get("files") and not dry_run:
            show(f"{each['table']}:")
            print_figures(each)
        for note in each.get("notes", ()):
            show(f"{each['table']}: {note}")
        for name, why in [*each.get("spared", {}).items(), *each.get("failed", {}).items()]:
            show(f"{each['table']}/{name} is kept: {why}")
        for path in each.get("paths", ()) if dry_run else ():
            show(f"{each['table']}/{path}")
