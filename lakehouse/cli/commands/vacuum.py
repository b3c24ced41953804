"""`lakehouse vacuum`: deletes files that are no longer needed, or only lists them."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import click

from lakehouse.cli.context import (
    LakeContext,
    complete_table,
    error_cell,
    open_declared,
    tell_once,
    worst_code,
)
from lakehouse.cli.output import (
    bytes_text,
    count_text,
    json_option,
    print_figures,
    print_grid,
    show,
    tell,
    write_json,
)
from lakehouse.cli.spark_server import driver_on_demand
from lakehouse.core.declaration.table import Table
from lakehouse.core.declaration.vacuum_policy import VACUUM_MODES
from lakehouse.core.errors import Broken, LakehouseError
from lakehouse.engine.compaction.skip_reasons import refuse_upkeep
from lakehouse.engine.lake import Lake
from lakehouse.engine.spark.open_session import connect
from lakehouse.engine.vacuum.lake_facts import LakeFacts
from lakehouse.engine.vacuum.run import rehearse


@click.command("vacuum", epilog="Example: lakehouse vacuum bronze/weather --dry-run")
@click.argument("tables", metavar="[TABLE]...", nargs=-1, shell_complete=complete_table)
@click.option(
    "--dry-run", is_flag=True, help="List every file that would be deleted, and delete none."
)
@click.option(
    "--mode",
    type=click.Choice(VACUUM_MODES, case_sensitive=False),
    help="Use this mode. Default: the cheapest valid one.",
)
@click.option("--anyway", is_flag=True, help="Also vacuum a table that is paused or opts out.")
@json_option
def vacuum_command(
    tables: tuple[str, ...], dry_run: bool, mode: str | None, anyway: bool, as_json: bool
) -> int:
    """Delete files that are no longer needed. With --dry-run, only list them.

    These are files of each TABLE (default: all) that no version within the table's retention needs.
    They are selected from the table's log and the storage inventory. Delta selects files on its
    own, and a Dagster run deletes only files that both selections contain.
    """
    opened = open_declared()
    chosen = opened.choose(tables)
    documents = (
        _rehearse(opened, chosen, mode) if dry_run else _vacuum(opened, chosen, mode, anyway=anyway)
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
        if failed := each.get("failed"):  # a person must look at these; the others are deleted
            name, why = next(iter(failed.items()))
            count = count_text(each["failed_files"])
            tell(
                f"{Broken.__name__}: vacuum of {each['table']}: files that could not be "
                f"deleted: {count}, for example {name}: {why}"
            )
            codes.append(Broken.exit_code)
    return worst_code(codes)


def _rehearse(
    opened: LakeContext, tables: Sequence[Table], mode: str | None
) -> list[dict[str, Any]]:
    facts = LakeFacts(
        opened.lake, [*opened.tables.values()], wanted={table.key for table in tables}
    )
    session = partial(connect, opened.lake.settings)
    documents = list[dict[str, Any]]()
    with driver_on_demand(opened.lake.settings):
        for table in tables:
            try:
                plan = rehearse(facts, session, table, mode=mode)  # type: ignore[arg-type]
                documents.append(_nothing(table) if plan is None else plan.as_json())
            except LakehouseError as error:
                documents.append(_failed(table, error))
    return documents


def _vacuum(
    opened: LakeContext, tables: Sequence[Table], mode: str | None, *, anyway: bool
) -> list[dict[str, Any]]:
    from lakehouse.cli.dagster_runs import open_recorder

    if len(tables) == 1 and not anyway:
        refuse_upkeep(opened.lake, tables[0], "vacuum")
    keys = {f"vacuum/{table.key}": table for table in tables if _has_log(opened.lake, table)}
    documents = {table.key: _nothing(table) for table in tables}
    if keys:
        with (
            open_recorder(opened.lake.settings, opened.tables.values()) as recorder,
            driver_on_demand(opened.lake.settings),
        ):
            for run in recorder.materialize([*keys], config={"anyway": anyway, "mode": mode or ""}):
                table = keys[run.key]
                try:
                    documents[table.key] = dict(run.outcome()["lakehouse/vacuum"])
                except LakehouseError as error:
                    documents[table.key] = _failed(table, error)
    return [*documents.values()]


def _has_log(lake: Lake, table: Table) -> bool:
    """Whether the table's log contains a version, according to the names of its files."""
    return any(
        file.name.rpartition("/")[2][:20].isdigit()
        for file in lake.store.list(f"{table.key}/_delta_log")
    )


def _failed(table: Table, error: LakehouseError) -> dict[str, Any]:
    kind = {"kind": type(error).__name__, "message": str(error), "exit_code": error.exit_code}
    return {**_nothing(table, "FAILED", str(error)), "error": kind}


def _nothing(
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
    actual = () if dry_run else ("deleted", "bytes deleted")
    rows = list[tuple[str, ...]]()
    for each in documents:
        # S3 also reports a key as deleted if no such object existed.
        at_most = "at most " if each.get("actual_is_at_most") else ""
        deleted = (
            f"{at_most}{count_text(each.get('actual_files', 0))}",
            f"{at_most}{bytes_text(each.get('actual_bytes', 0))}",
        )
        sentence = error_cell(each["error"]["kind"]) if "error" in each else each["sentence"]
        planned = (
            each["table"],
            each.get("mode", "-"),
            count_text(each["files"]),
            bytes_text(each["bytes"]),
        )
        rows.append((*planned, *(() if dry_run else deleted), sentence))
    print_grid(
        ("table", "mode", "files", "bytes", *actual, ""), rows, numbers=("files", "bytes", *actual)
    )
    for each in documents:
        if each["files"] and not dry_run:
            show(f"{each['table']}:")
            print_figures(each)
        for note in each.get("notes", ()):
            show(f"{each['table']}: {note}")
        for name, why in [*each.get("spared", {}).items(), *each.get("failed", {}).items()]:
            show(f"{each['table']}/{name} is kept: {why}")
        for path in each["paths"] if dry_run else ():
            show(f"{each['table']}/{path}")
