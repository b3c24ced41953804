"""`lakehouse inventory`: the storage listed once, and what lies in it, by table and part; a JVM only to load it into a table."""

import time
from typing import Any

import click

from lakehouse.cli.context import complete_table, nearest, open_declared
from lakehouse.cli.output import attributes, bytes_text, count_text, json_option, print_grid, show, tell, time_text, write_json
from lakehouse.cli.spark_server import driver_for_command
from lakehouse.core.errors import Broken, Refused
from lakehouse.core.inventory.usage import TableShares, UsageShare
from lakehouse.engine.clock import now_ms
from lakehouse.engine.inventory.reconcile_lake import LakeReport, reconcile_lake
from lakehouse.engine.inventory.scan import scan

_BAR = 24
_NAMED = 20


@click.group("inventory", short_help="What lies in the lake's storage, by table and part.", epilog="Example: lakehouse inventory scan")
def inventory_command() -> None:
    """List the storage, and hold the list against the tables' logs. No file of a table is deleted; a scan removes its own old reports."""


@inventory_command.command(
    "scan", short_help="List the storage, and write the list down as a report.", epilog="Example: lakehouse inventory scan"
)
@json_option
def scan_command(as_json: bool) -> None:
    """List everything below the lake's root into a report like those of AWS S3 Inventory, below _lakehouse/inventory/."""
    lake = open_declared().lake
    began = time.monotonic()
    scanned = scan(lake.store, now_ms=now_ms(), progress=lambda count: tell(f"{count:,} objects"))
    document = {
        "report": scanned.manifest_name,
        "bucket": scanned.manifest.source_bucket,
        "created_ms": scanned.manifest.created_ms,
        **attributes(scanned, "object_count", "size_bytes"),
        "data_files": len(scanned.manifest.files),
        "seconds": round(time.monotonic() - began, 3),
    }
    if as_json:
        write_json(document)
        return
    counted = f"{scanned.object_count:,} objects of {bytes_text(scanned.size_bytes)}"
    show(f"{counted} listed in {document['seconds']:.1f} s: {scanned.manifest_name}")


@inventory_command.command(
    "load", short_help="The newest report into the table inventory/<bucket>.", epilog="Example: lakehouse inventory load"
)
@click.option(
    "--configuration", metavar="ID", default="", help="Only reports of this inventory configuration (our own scans: lakehouse-scan)."
)
@json_option
def load_command(configuration: str, as_json: bool) -> int:
    """Load the newest complete report into the lake's inventory table, through Dagster, and check it; a lake that nobody lists is scanned.

    A report that is in the table already is not loaded again. The exit code is 1 if a file that a table's newest version reads is missing.
    """
    from lakehouse.cli.dagster_runs import open_recorder
    from lakehouse.engine.inventory.reports_table import inventory_table

    lake = open_declared().lake
    key = inventory_table(lake.store.bucket)
    with open_recorder(lake.settings) as recorder, driver_for_command(lake.settings):
        [run] = recorder.materialize([key], config={"configuration": configuration})
    if run.error:
        raise run.error
    if run.state != "done":
        raise Broken(f"inventory load: run {run.run_id} ended without an outcome; the page shows it under Runs")
    numbers = ("report", "size_bytes", "rows_loaded", "missing_files", "seconds")
    told = {name: run.metadata[f"lakehouse/{name}"] for name in numbers} | {"object_count": run.metadata["lakehouse/objects"]}
    document = {"table": key, "version": run.metadata.get("lakehouse/version"), **told, "run_id": run.run_id}
    if as_json:
        write_json(document)
    else:
        counted = f"{document['object_count']:,} objects of {bytes_text(document['size_bytes'])}"
        show(f"report {document['report']}: {counted}; {document['rows_loaded']:,} row(s) loaded into {key}, version {document['version']}")
    if told["missing_files"]:
        tell(f"{Broken.__name__}: {told['missing_files']} live file(s) are not in storage; lakehouse inventory report names them")
    return Broken.exit_code if told["missing_files"] else 0


@inventory_command.command(
    "report", short_help="Where the bytes lie, by table and part.", epilog="Example: lakehouse inventory report bronze/weather"
)
@click.argument("table", required=False, shell_complete=complete_table)
@click.option("--configuration", metavar="ID", help="Only reports of this inventory configuration (our own scans: lakehouse-scan).")
@click.option("--max-age", "max_age_hours", type=float, metavar="HOURS", help="Refuse a report that is older.")
@json_option
def report_command(table: str | None, configuration: str | None, max_age_hours: float | None, as_json: bool) -> int:
    """Hold the newest complete report against the logs: TABLE, or all tables and what belongs to none.

    The exit code is 1 if a file that a table's newest version reads is missing, or the log of a table cannot be read.
    """
    opened = open_declared()
    now = now_ms()
    found = reconcile_lake(opened.lake, opened.tables.values(), now_ms=now, configuration=configuration, max_age_hours=max_age_hours)
    tables = {each.table: each for each in found.reconciliation.tables}
    if table is not None and table not in tables:
        raise Refused(f"table {table!r} is in neither the report nor the lake; {nearest(table, tables)}")
    chosen = list(tables.values()) if table is None else [tables[table]]
    others = found.reconciliation.unclaimed if table is None else ()
    if as_json:
        write_json(report_document(found, chosen, others, now=now))
    else:
        _print_report(found, chosen, others, now=now)
    wrong = [sentence for each in chosen if (sentence := trouble_of(each))]
    for sentence in wrong:
        tell(f"{Broken.__name__}: {sentence}")
    return Broken.exit_code if wrong else 0


def trouble_of(table: TableShares) -> str:
    """What a person must look at in a table, or nothing."""
    if table.problem:
        return f"{table.table}: {table.problem}"
    if not table.missing:
        return ""
    where = "and nothing else of the table is in the report: is it another prefix's?" if not table.shares else "restore them from a backup"
    return f"{table.table}: {len(table.missing)} file(s) of version {table.version} are not in storage, first {table.missing[0]}; {where}"


def report_document(found: LakeReport, tables: list[TableShares], others: tuple[UsageShare, ...], *, now: int) -> dict[str, Any]:
    """The documented shape."""
    manifest = found.report.manifest
    return {
        "report": {
            "name": found.report.name,
            "bucket": manifest.source_bucket,
            "file_format": manifest.file_format,
            "created_ms": manifest.created_ms,
            "age_seconds": round((now - manifest.created_ms) / 1_000, 3),
            "object_count": found.reconciliation.file_count,
            "size_bytes": found.reconciliation.size_bytes,
        },
        "tables": [_table_document(table) for table in tables],
        "unclaimed": [{"folder": share.folder, **_share_document(share)} for share in others],
    }


def _table_document(table: TableShares) -> dict[str, Any]:
    return {
        **attributes(table, "table", "version", "file_count", "size_bytes", "unsettled_count", "outside_count"),
        "retention_seconds": None if table.retention_ms is None else table.retention_ms / 1_000,
        "parts": [{"part": share.part.name.lower(), **_share_document(share)} for share in table.shares if share.part],
        "missing": list(table.missing),
        "resized": list(table.resized),
        "sentence": trouble_of(table),
    }


def _share_document(share: UsageShare) -> dict[str, Any]:
    return attributes(share, "storage_class", "file_count", "size_bytes", "small_count")


def _print_report(found: LakeReport, tables: list[TableShares], others: tuple[UsageShare, ...], *, now: int) -> None:
    created_ms = found.report.manifest.created_ms
    hours = found.report.manifest.age_hours(now)
    show(f"report {found.report.name}: as of {time_text(created_ms)}, {hours:.1f} h ago")
    count = sum(table.file_count for table in tables) + sum(share.file_count for share in others)
    size = sum(table.size_bytes for table in tables) + sum(share.size_bytes for share in others)
    rows = [_row(table.table, share, size) for table in tables for share in table.shares]
    rows += [_row("", share, size) for share in others]
    sums = ("sum", "", "", count_text(count), bytes_text(size), "", f"{size} bytes")
    print_grid(("table", "part", "class", "files", "bytes", "", "meaning"), [*rows, sums], numbers=("files", "bytes"))
    for table in tables:
        _print_names(f"{table.table}: not in storage", table.missing)
        _print_names(f"{table.table}: of another size than the log has", table.resized)
        if small := sum(share.small_count for share in table.shares):
            show(f"{table.table}: {small:,} small data file(s) by the report alone, since its log cannot be read")
        if table.unsettled_count:
            show(f"{table.table}: {table.unsettled_count} live file(s) are too new for the report to have them")


def _row(table: str, share: UsageShare, whole: int) -> tuple[str, ...]:
    part, meaning = (share.part.name.lower(), share.part.value) if share.part else (share.folder, "belongs to no table")
    bar = "█" * round(_BAR * share.size_bytes / whole) if whole else ""
    return (table or "-", part, share.storage_class or "-", count_text(share.file_count), bytes_text(share.size_bytes), bar, meaning)


def _print_names(head: str, names: tuple[str, ...]) -> None:
    if names:
        show(f"{head}: {len(names)}")
        for name in names[:_NAMED]:
            show(f"  {name}")
        if len(names) > _NAMED:
            show(f"  and {len(names) - _NAMED} more; all of them with --json")
