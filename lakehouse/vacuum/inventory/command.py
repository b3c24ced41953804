"""`lakehouse inventory`: lists the storage, and shows its contents by table and use.

A part is one use of a table's bytes (`Part`), for example live files.
"""

from collections.abc import Sequence

import click

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import Broken, Refused
from lakehouse.base.stored_objects import Inventory
from lakehouse.base.text import count_of
from lakehouse.cli.context import complete_table, nearest, open_declared
from lakehouse.cli.output import (
    attributes,
    bytes_text,
    count_text,
    json_option,
    print_grid,
    show,
    tell,
    time_text,
    write_json,
)
from lakehouse.vacuum.inventory.plan.reconcile import Reconciliation, TableShares, UsageShare
from lakehouse.vacuum.inventory.run import reconcile_inventory
from lakehouse.vacuum.inventory.table import inventory_table, newest_inventory

_BAR_WIDTH = 24
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
    """Load the newest report of AWS, or a list of the storage, into inventory/<bucket>.

    Dagster loads it, and compares it with the tables' logs. If AWS delivers no reports, or with
    --configuration lakehouse-scan, the storage is listed. A report that is already in the table is
    not loaded again. The exit code is 1 if a file that a table's newest version reads is missing.
    """
    from lakehouse.cli.dagster_runs import open_recorder

    context = open_declared()
    lake = context.lake
    tables = context.tables.values()
    key = inventory_table(lake.store.bucket)
    with open_recorder(lake.settings, tables) as recorder:
        [run] = recorder.materialize([key], config={"configuration": configuration or ""})
    metadata = run.outcome()
    figures = ("report", "size_bytes", "rows_loaded", "missing_files", "seconds")
    document = {
        "table": key,
        **{name: metadata[f"lakehouse/{name}"] for name in figures},
        "object_count": metadata["lakehouse/objects"],
        "version": metadata["lakehouse/version"],
        "run_id": run.run_id,
    }
    if as_json:
        write_json(document)
    else:
        objects = f"{document['object_count']:,} objects of {bytes_text(document['size_bytes'])}"
        show(
            f"inventory {document['report']}: {objects}; rows loaded into {key}: "
            f"{document['rows_loaded']:,}, version {document['version']}"
        )
    missing_count = document["missing_files"]
    if not missing_count:
        return 0
    tell(
        f"{Broken.__name__}: not in storage: {count_of(missing_count, 'live file')}. "
        "Use lakehouse inventory report to list missing files"
    )
    return Broken.exit_code


@inventory_command.command("report", epilog="Example: lakehouse inventory report bronze/weather")
@click.argument("table", required=False, shell_complete=complete_table)
@_configuration_option
@json_option
def report_command(table: str | None, configuration: str | None, as_json: bool) -> int:
    """Show where the bytes are, by table and use (part): live files, removed files, the log, ….

    Compares the newest inventory with the tables' logs, and shows TABLE (default: all tables,
    and the files that belong to no table). The exit code is 1 if a file that the newest version of
    a shown table reads is missing, or if the log of a shown table cannot be read.
    """
    context = open_declared()
    now = now_ms()
    inventory = newest_inventory(context.lake, now_ms=now, configuration=configuration)
    tables_declared = context.tables.values()
    reconciliation = reconcile_inventory(context.lake, tables_declared, inventory, now_ms=now)
    tables = {each.table: each for each in reconciliation.tables}
    if table is not None and table not in tables:
        raise Refused(
            f"table {table!r} is in neither the inventory nor the lake; {nearest(table, tables)}"
        )
    chosen = list(tables.values()) if table is None else [tables[table]]
    others = reconciliation.unclaimed if table is None else ()
    if as_json:
        _write_report(inventory, reconciliation, chosen, others, now=now)
    else:
        _print_report(inventory, chosen, others, now=now)
    problems = [sentence for sentence in map(_problem_of, chosen) if sentence]
    for sentence in problems:
        tell(f"{Broken.__name__}: {sentence}")
    return Broken.exit_code if problems else 0


def _problem_of(table: TableShares) -> str:
    """The problem of a table that requires manual action, or an empty string."""
    if table.problem:
        return f"{table.table}: {table.problem}"
    if not table.missing:
        return ""
    if table.shares:
        advice = "restore them from a backup"
    else:
        advice = "no file of the table is in the inventory. Does it cover another prefix?"
    return (
        f"{table.table}: not in storage: {count_of(len(table.missing), 'file')} of version "
        f"{table.version}, the first is {table.missing[0]}; {advice}"
    )


def _write_report(
    inventory: Inventory,
    reconciliation: Reconciliation,
    tables: list[TableShares],
    others: tuple[UsageShare, ...],
    *,
    now: int,
) -> None:
    inventory_document = {
        **attributes(inventory, "name", "created_ms"),
        "age_seconds": round((now - inventory.created_ms) / 1_000, 3),
        "object_count": reconciliation.file_count,
        "size_bytes": reconciliation.size_bytes,
    }
    share_fields = ("storage_class", "file_count", "size_bytes", "small_count")
    documents = [
        {
            **attributes(
                table,
                "table",
                "version",
                "file_count",
                "size_bytes",
                "unsettled_count",
                "outside_count",
                "missing",
                "resized",
            ),
            "retention_seconds": None if table.retention_ms is None else table.retention_ms / 1_000,
            "parts": [
                {"part": share.part.name.lower(), **attributes(share, *share_fields)}
                for share in table.shares
                if share.part
            ],
            "sentence": _problem_of(table),
        }
        for table in tables
    ]
    write_json(
        {
            "inventory": inventory_document,
            "tables": documents,
            "unclaimed": [attributes(share, "folder", *share_fields) for share in others],
        }
    )


def _print_report(
    inventory: Inventory, tables: list[TableShares], others: tuple[UsageShare, ...], *, now: int
) -> None:
    show(
        f"inventory {inventory.name}: as of {time_text(inventory.created_ms)}, "
        f"{inventory.age_hours(now):.1f} h ago"
    )
    count = sum(table.file_count for table in tables) + sum(share.file_count for share in others)
    size = sum(table.size_bytes for table in tables) + sum(share.size_bytes for share in others)
    rows = [_row(table.table, share, size) for table in tables for share in table.shares]
    rows += [_row("", share, size) for share in others]
    sums = ("sum", "", "", count_text(count), bytes_text(size), "", f"{size} bytes")
    print_grid(
        ("table", "part", "class", "files", "bytes", "", "meaning"),
        [*rows, sums],
        numbers=("files", "bytes"),
    )
    for table in tables:
        _print_names(table.table, "not in storage", table.missing)
        _print_names(table.table, "of a different size than in the log", table.resized)
        small_count = sum(share.small_count for share in table.shares)
        if small_count:
            show(
                f"{table.table}: small data files, by the inventory because the log cannot be "
                f"read: {small_count:,}"
            )
        if table.unsettled_count:
            show(
                f"{table.table}: too new to be in the inventory: "
                f"{count_of(table.unsettled_count, 'live file')}"
            )


def _print_names(table: str, title: str, names: Sequence[str]) -> None:
    if names:
        show(f"{table}: {title}: {len(names)}")
    for name in names[:_NAMED]:
        show(f"  {name}")
    if len(names) > _NAMED:
        show(f"  and {len(names) - _NAMED} more. Use --json to list all")


def _row(table: str, share: UsageShare, total_bytes: int) -> tuple[str, ...]:
    if share.part:
        part = share.part.name.lower()
        meaning = share.part.value
    else:
        part = share.folder
        meaning = "belongs to no table"
    bar = "█" * round(_BAR_WIDTH * share.size_bytes / total_bytes) if total_bytes else ""
    return (
        table or "-",
        part,
        share.storage_class or "-",
        count_text(share.file_count),
        bytes_text(share.size_bytes),
        bar,
        meaning,
    )
