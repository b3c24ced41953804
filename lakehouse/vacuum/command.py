"""`lakehouse vacuum` deletes files that are no longer needed, or only lists them.

`lakehouse inventory` lists the storage, and shows its contents by table and use. A part is one use
of a table's bytes (`Part`), for example live files.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import Broken, Refused
from lakehouse.base.operation import VACUUM_MODES
from lakehouse.base.stored_objects import Inventory, Part
from lakehouse.base.text import Document
from lakehouse.cli.context import complete_table, nearest, open_declared, print_errors
from lakehouse.cli.dagster_events import report_to_dagster
from lakehouse.cli.output import (
    attributes,
    bytes_text,
    count_text,
    flag,
    json_option,
    print_figures,
    print_grid,
    show,
    tell,
    time_text,
    working,
    write_json,
)
from lakehouse.cli.server_command import driver_on_demand
from lakehouse.compact.assess import refuse_held
from lakehouse.declare.table import Table
from lakehouse.lake.lake import Found, Lake, attempt
from lakehouse.vacuum import run
from lakehouse.vacuum.facts import LakeFacts
from lakehouse.vacuum.inventory.plan import Reconciliation, assess_missing
from lakehouse.vacuum.inventory.run import (
    inventory_table,
    newest_inventory,
    reconcile_inventory,
    update_inventory,
)
from lakehouse.vacuum.plan.vacuum import VacuumOutcome, VacuumPlan

if TYPE_CHECKING:
    from lakehouse.assets.events import Event, Reporter


# At most this many missing and this many resized files of a table are printed.
_NAMED = 20
_configuration_option = click.option(
    "--configuration",
    metavar="ID",
    help="Use only this inventory configuration (lakehouse-scan: the lake's own scans).",
)


@click.group("inventory", epilog="Example: lakehouse inventory load")
def inventory_command() -> None:
    """Show the contents of the lake's storage, by table and use."""


@inventory_command.command("load", epilog="Example: lakehouse inventory load")
@_configuration_option
@json_option
def load_command(configuration: str | None, as_json: bool) -> int:
    """Load the newest report of AWS, or a list of the storage.

    It is compared with the tables' logs. If AWS delivers no reports, or with --configuration
    lakehouse-scan, the storage is listed. A report that is already in the table is not loaded
    again. The exit code is 1 if a file that a table's newest version reads is missing, or if the
    log of a table cannot be read.
    """
    context = open_declared()
    lake = context.lake
    tables = tuple(context.tables.values())
    with working(f"inventory of {lake.store.bucket}"):
        outcome = update_inventory(lake, tables, now_ms=now_ms(), configuration=configuration)

    def events(reporter: "Reporter") -> "Iterable[Event]":
        from lakehouse.vacuum.asset import inventory_events

        return inventory_events(reporter, lake, tables, outcome)

    report_to_dagster(lake.settings, "the inventory is loaded", events)
    key = inventory_table(lake)
    document = {
        "table": key,
        "report": outcome.inventory.name,
        "size_bytes": outcome.inventory.size_bytes,
        "rows_loaded": outcome.newly_loaded,
        "missing_files": assess_missing(outcome.reconciliation).numbers["missing_files"],
        "seconds": round(outcome.seconds, 3),
        "object_count": outcome.inventory.object_count,
    }
    if as_json:
        write_json(document)
    else:
        objects = f"{document['object_count']:,} objects of {bytes_text(document['size_bytes'])}"
        show(
            f"inventory {document['report']}: {objects}; rows loaded into {key}: "
            f"{document['rows_loaded']:,}"
        )
    return _exit_code(outcome.reconciliation)


@inventory_command.command("report", epilog="Example: lakehouse inventory report bronze/weather")
@click.argument("table", required=False, shell_complete=complete_table)
@_configuration_option
@json_option
def report_command(table: str | None, configuration: str | None, as_json: bool) -> int:
    """Show where the bytes are, by table and use.

    A use (part) is, for example, live files, removed files, or the log. Compares the newest
    inventory with the tables' logs, and shows TABLE (default: all tables, and the files that belong
    to no table). The exit code is 1 if a file that the newest version of
    a shown table reads is missing, or if the log of a shown table cannot be read.
    """
    context = open_declared()
    now = now_ms()
    inventory = newest_inventory(context.lake, configuration=configuration)
    reconciliation = reconcile_inventory(
        context.lake, context.tables.values(), inventory, now_ms=now
    )
    tables = {each.table: each for each in reconciliation.tables}
    if table is not None and table not in tables:
        raise Refused(
            f"table {table!r} is in neither the inventory nor the lake; {nearest(table, tables)}"
        )
    if table is not None:
        reconciliation = replace(reconciliation, tables=(tables[table],), unclaimed=())
    document = _inventory_document(inventory, reconciliation, now=now)
    if as_json:
        write_json(document)
    else:
        _print_inventory(document)
    return _exit_code(reconciliation)


def _exit_code(reconciliation: Reconciliation) -> int:
    """1, with an error message, if a live file is missing or a log cannot be read."""
    check = assess_missing(reconciliation)
    if check.ok:
        return 0
    tell(f"{Broken.__name__}: {check.sentence}")
    return Broken.exit_code


def _inventory_document(
    inventory: Inventory, reconciliation: Reconciliation, *, now: int
) -> Document:
    share_fields = ("storage_class", "file_count", "size_bytes", "small_count")
    table_fields = ("table", "version", "file_count", "size_bytes", "missing", "resized", "problem")
    return {
        "inventory": {
            **attributes(inventory, "name", "created_ms", "object_count", "size_bytes"),
            "age_seconds": round((now - inventory.created_ms) / 1_000, 3),
        },
        "tables": [
            {
                **attributes(table, *table_fields),
                "retention_seconds": table.retention_ms and table.retention_ms / 1_000,
                "parts": [
                    {"part": share.part.name.lower(), **attributes(share, *share_fields)}
                    for share in table.shares
                    if share.part
                ],
            }
            for table in reconciliation.tables
        ],
        "unclaimed": [
            attributes(share, "folder", *share_fields) for share in reconciliation.unclaimed
        ],
    }


def _print_inventory(document: Document) -> None:
    inventory = document["inventory"]
    show(
        f"inventory {inventory['name']}: as of {time_text(inventory['created_ms'])}, "
        f"{inventory['age_seconds'] / 3_600:.1f} h ago"
    )
    rows = list[tuple[str, ...]]()
    for table in document["tables"]:
        for part in table["parts"]:
            rows.append(_row(table["table"], part["part"], part, Part[part["part"].upper()].value))
    for share in document["unclaimed"]:
        rows.append(_row("-", share["folder"], share, "belongs to no table"))
    print_grid(
        ("table", "part", "class", "files", "bytes", "meaning"), rows, numbers=("files", "bytes")
    )
    for table in document["tables"]:
        _print_names(table["table"], "not in storage", table["missing"])
        _print_names(table["table"], "of a different size than in the log", table["resized"])
        small_count = sum(part["small_count"] for part in table["parts"])
        if small_count:
            show(
                f"{table['table']}: small data files, by the inventory because the log cannot be "
                f"read: {small_count:,}"
            )


def _row(table: str, part: str, share: Document, meaning: str) -> tuple[str, ...]:
    return (
        table,
        part,
        share["storage_class"] or "-",
        count_text(share["file_count"]),
        bytes_text(share["size_bytes"]),
        meaning,
    )


def _print_names(table: str, title: str, names: Sequence[str]) -> None:
    if names:
        show(f"{table}: {title}: {len(names)}")
    for name in names[:_NAMED]:
        show(f"  {name}")
    if len(names) > _NAMED:
        show(f"  and {len(names) - _NAMED} more. Use --json to list all")


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
    facts = LakeFacts(lake, [*context.tables.values()])
    with driver_on_demand(lake.settings) as session:

        def vacuum(table: Table) -> VacuumPlan | VacuumOutcome | None:
            with working(f"vacuum of {table.key}"):
                if dry_run:
                    return run.rehearse(facts, session, table, mode=mode)  # type: ignore[arg-type]
                if not anyway:
                    refuse_held(lake, table, "vacuum")
                return run.vacuum(facts, session, table, mode=mode)  # type: ignore[arg-type]

        readings = [attempt(table, vacuum) for table in chosen]
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
