"""`lakehouse inventory`: lists the storage, and shows its contents by table and use.

A part is one use of a table's bytes (`Part`), for example live files.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import Broken, Refused
from lakehouse.base.stored_objects import Inventory, Part
from lakehouse.base.text import Document
from lakehouse.cli.context import complete_table, nearest, open_declared
from lakehouse.cli.dagster_events import report_to_dagster
from lakehouse.cli.output import (
    attributes,
    bytes_text,
    count_text,
    json_option,
    print_grid,
    show,
    tell,
    time_text,
    working,
    write_json,
)
from lakehouse.vacuum.inventory.plan import Reconciliation, assess_missing
from lakehouse.vacuum.inventory.run import (
    inventory_table,
    newest_inventory,
    reconcile_inventory,
    update_inventory,
)

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
        from lakehouse.vacuum.inventory.asset import inventory_events

        return inventory_events(reporter, lake, tables, outcome)

    report_to_dagster(lake.settings, "the inventory is loaded", events)
    key = inventory_table(lake)
    document = {
        "table": key,
        "report": outcome.inventory.name,
        "size_bytes": outcome.inventory.size_bytes,
        "rows_loaded": outcome.newly_loaded,
        "missing_files": outcome.missing_count,
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
    document = _document(inventory, reconciliation, now=now)
    if as_json:
        write_json(document)
    else:
        _print(document)
    return _exit_code(reconciliation)


def _exit_code(reconciliation: Reconciliation) -> int:
    """1, with an error message, if a live file is missing or a log cannot be read."""
    check = assess_missing(reconciliation)
    if check.ok:
        return 0
    tell(f"{Broken.__name__}: {check.sentence}")
    return Broken.exit_code


def _document(inventory: Inventory, reconciliation: Reconciliation, *, now: int) -> Document:
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


def _print(document: Document) -> None:
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
