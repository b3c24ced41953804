"""`lakehouse vacuum`: deletes files that are no longer needed, or only lists them."""

import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from lakehouse.base.errors import Broken, LakehouseError
from lakehouse.cli.context import (
    LakeContext,
    complete_table,
    error_cell,
    open_declared,
    tell_once,
    worst_code,
)
from lakehouse.cli.dagster_events import report_to_dagster
from lakehouse.cli.output import (
    bytes_text,
    count_text,
    json_option,
    print_figures,
    print_grid,
    show,
    tell,
    working,
    write_json,
)
from lakehouse.cli.spark_server import driver_on_demand
from lakehouse.compact.skip_reasons import refuse_upkeep
from lakehouse.declare.table import Table
from lakehouse.declare.vacuum import VACUUM_MODES
from lakehouse.spark.session import connect
from lakehouse.vacuum import run
from lakehouse.vacuum.lake_facts import LakeFacts
from lakehouse.vacuum.plan.vacuum import VacuumOutcome, VacuumPlan

if TYPE_CHECKING:
    from lakehouse.assets.events import Event, Reporter


@click.command("vacuum", epilog="Example: lakehouse vacuum bronze/weather --dry-run")
@click.argument("tables", metavar="[TABLE]...", nargs=-1, shell_complete=complete_table)
@click.option(
    "--dry-run", is_flag=True, help="List every file that would be deleted, and delete none."
)
@click.option(
    "--mode",
    type=click.Choice(VACUUM_MODES, case_sensitive=False),
    help="Use this mode. Default: the cheapest mode that is valid for the table now.",
)
@click.option("--anyway", is_flag=True, help="Also vacuum a table that is paused or opts out.")
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
    chosen = context.choose(tables)
    documents = (
        _rehearse(context, chosen, mode)
        if dry_run
        else _vacuum(context, chosen, mode, anyway=anyway)
    )
    if as_json:
        write_json(documents)
    else:
        _print(documents, dry_run=dry_run)
    tell_once(
        (each["table"], f"{each['error']['kind']}: {each['error']['message']}")
        for each in documents
        if "error" in each
    )
    codes = [each["error"]["exit_code"] for each in documents if "error" in each]
    for each in documents:
        if failed := each.get("failed"):  # the files that could not be deleted
            name, why = next(iter(failed.items()))
            count = count_text(each["failed_files"])
            tell(
                f"{Broken.__name__}: vacuum of {each['table']}: files that could not be "
                f"deleted: {count}, for example {name}: {why}"
            )
            codes.append(Broken.exit_code)
    return worst_code(codes)


def _rehearse(
    context: LakeContext, tables: Sequence[Table], mode: str | None
) -> list[dict[str, Any]]:
    facts = _facts(context, tables)
    session = partial(connect, context.lake.settings)

    def rehearse(table: Table) -> VacuumPlan | None:
        return run.rehearse(facts, session, table, mode=mode)  # type: ignore[arg-type]

    return _documents(context, tables, rehearse)


def _vacuum(
    context: LakeContext, tables: Sequence[Table], mode: str | None, *, anyway: bool
) -> list[dict[str, Any]]:
    """Vacuums the tables, and reports to Dagster what their assets would have reported."""
    if len(tables) == 1 and not anyway:
        refuse_upkeep(context.lake, tables[0], "vacuum")
    facts = _facts(context, tables)
    settings = context.lake.settings
    done = list[tuple[Table, VacuumOutcome]]()

    def vacuum(table: Table) -> VacuumOutcome | None:
        if facts.log(table.key) is None:
            return None
        if not anyway:
            refuse_upkeep(context.lake, table, "vacuum")
        session = partial(connect, settings)
        outcome = run.vacuum(facts, session, table, mode=mode)  # type: ignore[arg-type]
        done.append((table, outcome))
        return outcome

    def events(_: "Reporter") -> "Iterable[Event]":
        from lakehouse.vacuum.asset import vacuum_events

        for table, outcome in done:
            yield from vacuum_events(table, outcome)

    documents = _documents(context, tables, vacuum)
    if done:
        report_to_dagster(settings, "the vacuum is done", events)
    return documents


def _facts(context: LakeContext, tables: Sequence[Table]) -> LakeFacts:
    wanted = {table.key for table in tables}
    return LakeFacts(context.lake, [*context.tables.values()], wanted=wanted)


def _documents(
    context: LakeContext,
    tables: Sequence[Table],
    vacuum: Callable[[Table], VacuumPlan | VacuumOutcome | None],
) -> list[dict[str, Any]]:
    """The document of each table's plan or outcome, or of its error: the other tables go on."""
    documents = list[dict[str, Any]]()
    with driver_on_demand(context.lake.settings):
        for table in tables:
            try:
                with working(f"vacuum of {table.key}"):
                    value = vacuum(table)
                documents.append(_empty_document(table) if value is None else value.as_json())
            except LakehouseError as error:
                documents.append(_failed_document(table, error))
            except Exception as error:
                tell(traceback.format_exc())
                defect = Broken(f"a defect of this program: {type(error).__name__}: {error}")
                documents.append(_failed_document(table, defect))
    return documents


def _failed_document(table: Table, error: LakehouseError) -> dict[str, Any]:
    message = str(error)
    details = {"kind": type(error).__name__, "message": message, "exit_code": error.exit_code}
    return {**_empty_document(table, "FAILED", message), "error": details}


def _empty_document(
    table: Table, reason: str = "NO_TABLE", sentence: str = "there is no table yet"
) -> dict[str, Any]:
    return {
        "table": table.key,
        "version": None,
        "reason": reason,
        "sentence": sentence,
        "files": 0,
        "bytes": 0,
        "paths": [],
    }


def _print(documents: Sequence[Mapping[str, Any]], *, dry_run: bool) -> None:
    actual_heads = () if dry_run else ("deleted", "bytes deleted")
    rows = list[tuple[str, ...]]()
    for each in documents:
        row = [
            each["table"],
            each.get("mode", "-"),
            count_text(each["files"]),
            bytes_text(each["bytes"]),
        ]
        if not dry_run:
            # S3 also reports a key as deleted if no such object existed.
            at_most = "at most " if each.get("actual_is_at_most") else ""
            row.append(f"{at_most}{count_text(each.get('actual_files', 0))}")
            row.append(f"{at_most}{bytes_text(each.get('actual_bytes', 0))}")
        row.append(error_cell(each["error"]["kind"]) if "error" in each else each["sentence"])
        rows.append(tuple(row))
    numbers = ("files", "bytes", *actual_heads)
    print_grid(("table", "mode", *numbers, ""), rows, numbers=numbers)
    for each in documents:
        if each["files"] and not dry_run:
            show(f"{each['table']}:")
            print_figures(each)
        for note in each.get("notes", ()):
            show(f"{each['table']}: {note}")
        for name, why in [*each.get("spared", {}).items(), *each.get("failed", {}).items()]:
            show(f"{each['table']}/{name} is kept: {why}")
        if dry_run:
            for path in each["paths"]:
                show(f"{each['table']}/{path}")
