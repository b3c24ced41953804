"""`lakehouse inventory`: lists the storage once, and shows its contents by table and part.

Only loading an inventory into a table starts a JVM.
"""

import time

import click

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
from lakehouse.cli.spark_server import driver_for_command
from lakehouse.core.errors import Broken, Refused
from lakehouse.core.inventory.reconcile import Reconciliation, TableShares, UsageShare
from lakehouse.core.inventory.report_manifest import Report
from lakehouse.core.text import count_of
from lakehouse.engine.clock import now_ms
from lakehouse.engine.inventory.reconcile_lake import known_report, reconcile_report
from lakehouse.engine.inventory.reports_table import inventory_table
from lakehouse.engine.inventory.scan import scan

_BAR = 24
_NAMED = 20
_configuration_option = click.option(
    "--configuration",
    metavar="ID",
    help="Use only reports of this inventory configuration (lakehouse-scan: the lake's own scans).",
)


@click.group("inventory", epilog="Example: lakehouse inventory scan")
def inventory_command() -> None:
    """Show the contents of the lake's storage, by table and part.

    No file of a table is deleted. A scan deletes its own old reports.
    """


@inventory_command.command("scan", epilog="Example: lakehouse inventory scan")
@json_option
def scan_command(as_json: bool) -> None:
    """List the storage, and write the list as a report.

    The report has the format of AWS S3 Inventory, and is written below _lakehouse/inventory/.
    """
    lake = open_declared().lake
    began = time.monotonic()
    created_ms = now_ms()
    scanned = scan(lake.store, now_ms=created_ms, progress=lambda count: tell(f"{count:,} objects"))
    seconds = round(time.monotonic() - began, 3)
    if as_json:
        document = {
            "report": scanned.manifest_name,
            "bucket": lake.store.bucket,
            "created_ms": created_ms,
        }
        document |= attributes(scanned, "object_count", "size_bytes")
        write_json({**document, "data_files": len(scanned.files), "seconds": seconds})
    else:
        counted = f"{scanned.object_count:,} objects of {bytes_text(scanned.size_bytes)}"
        show(f"{counted} listed in {seconds:.1f} s: {scanned.manifest_name}")


@inventory_command.command("load", epilog="Example: lakehouse inventory load")
@_configuration_option
@json_option
def load_command(configuration: str | None, as_json: bool) -> int:
    """Load the newest report into the table inventory/<bucket>.

    Dagster loads the report, and checks it against the tables' logs. If AWS delivers no reports,
    the lake is scanned first, at most once an hour. A report that the table already contains is not
    loaded again. The exit code is 1 if a file that a table's newest version reads is missing.
    """
    from lakehouse.cli.dagster_runs import open_recorder

    opened = open_declared()
    lake = opened.lake
    tables = opened.tables.values()
    key = inventory_table(lake.store.bucket)
    with open_recorder(lake.settings, tables) as recorder, driver_for_command(lake.settings):
        [run] = recorder.materialize([key], config={"configuration": configuration or ""})
    metadata = run.outcome()
    figures = {
        name: metadata[f"lakehouse/{name}"]
        for name in ("report", "size_bytes", "rows_loaded", "missing_files", "seconds")
    }
    figures |= {
        "object_count": metadata["lakehouse/objects"],
        "version": metadata.get("lakehouse/version"),
    }
    document = {"table": key, **figures, "run_id": run.run_id}
    if as_json:
        write_json(document)
    else:
        counted = f"{figures['object_count']:,} objects of {bytes_text(figures['size_bytes'])}"
        show(
            f"report {figures['report']}: {counted}; rows loaded into {key}: "
            f"{figures['rows_loaded']:,}, version {figures['version']}"
        )
    if figures["missing_files"]:
        tell(
            f"{Broken.__name__}: not in storage: "
            f"{count_of(figures['missing_files'], 'live file')}. Use lakehouse inventory report to "
            "list missing files"
        )
    return Broken.exit_code if figures["missing_files"] else 0


@inventory_command.command("report", epilog="Example: lakehouse inventory report bronze/weather")
@click.argument("table", required=False, shell_complete=complete_table)
@_configuration_option
@click.option(
    "--max-age",
    "max_age_hours",
    type=float,
    metavar="HOURS",
    help="Refuse a report that is older than this.",
)
@json_option
def report_command(
    table: str | None, configuration: str | None, max_age_hours: float | None, as_json: bool
) -> int:
    """Show where the bytes are, by table and part.

    Compares the newest complete report with the log of TABLE. Without TABLE, the logs of all tables
    are compared, and files that belong to no table are also shown. The exit code is 1 if a file
    that a table's newest version reads is missing, or if the log of a table cannot be read.
    """
    opened = open_declared()
    now = now_ms()
    report = known_report(
        opened.lake, now_ms=now, configuration=configuration, max_age_hours=max_age_hours
    )
    reconciliation = reconcile_report(opened.lake, opened.tables.values(), report, now_ms=now)
    tables = {each.table: each for each in reconciliation.tables}
    if table is not None and table not in tables:
        raise Refused(
            f"table {table!r} is in neither the report nor the lake; {nearest(table, tables)}"
        )
    chosen = list(tables.values()) if table is None else [tables[table]]
    others = reconciliation.unclaimed if table is None else ()
    if as_json:
        _write_report(report, reconciliation, chosen, others, now=now)
    else:
        _print_report(report, chosen, others, now=now)
    wrong = [sentence for each in chosen if (sentence := _problem_of(each))]
    for sentence in wrong:
        tell(f"{Broken.__name__}: {sentence}")
    return Broken.exit_code if wrong else 0


def _problem_of(table: TableShares) -> str:
    """The problem of a table that a person must solve, or an empty string."""
    if table.problem:
        return f"{table.table}: {table.problem}"
    if not table.missing:
        return ""
    advice = (
        "no file of the table is in the report. Does the report cover another prefix?"
        if not table.shares
        else "restore them from a backup"
    )
    return (
        f"{table.table}: not in storage: {count_of(len(table.missing), 'file')} of version "
        f"{table.version}, the first is {table.missing[0]}; {advice}"
    )


def _write_report(
    report: Report,
    reconciliation: Reconciliation,
    tables: list[TableShares],
    others: tuple[UsageShare, ...],
    *,
    now: int,
) -> None:
    head = {
        "name": report.name,
        "bucket": report.bucket,
        **attributes(report, "file_format", "created_ms"),
        "age_seconds": round((now - report.created_ms) / 1_000, 3),
        "object_count": reconciliation.file_count,
        "size_bytes": reconciliation.size_bytes,
    }
    counted = ("storage_class", "file_count", "size_bytes", "small_count")
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
                {"part": share.part.name.lower(), **attributes(share, *counted)}
                for share in table.shares
                if share.part
            ],
            "sentence": _problem_of(table),
        }
        for table in tables
    ]
    write_json(
        {
            "report": head,
            "tables": documents,
            "unclaimed": [attributes(share, "folder", *counted) for share in others],
        }
    )


def _print_report(
    report: Report, tables: list[TableShares], others: tuple[UsageShare, ...], *, now: int
) -> None:
    show(
        f"report {report.name}: as of {time_text(report.created_ms)}, {report.age_hours(now):.1f} "
        "h ago"
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
        for head, names in (
            ("not in storage", table.missing),
            ("of a different size than in the log", table.resized),
        ):
            if names:
                show(f"{table.table}: {head}: {len(names)}")
            for name in names[:_NAMED]:
                show(f"  {name}")
            if len(names) > _NAMED:
                show(f"  and {len(names) - _NAMED} more; all of them with --json")
        if small := sum(share.small_count for share in table.shares):
            show(
                f"{table.table}: small data files, counted from the report because the log cannot "
                f"be read: {small:,}"
            )
        if table.unsettled_count:
            show(
                f"{table.table}: too new to be in the report: "
                f"{count_of(table.unsettled_count, 'live file')}"
            )


def _row(table: str, share: UsageShare, whole: int) -> tuple[str, ...]:
    part, meaning = (
        (share.part.name.lower(), share.part.value)
        if share.part
        else (share.folder, "belongs to no table")
    )
    bar = "█" * round(_BAR * share.size_bytes / whole) if whole else ""
    return (
        table or "-",
        part,
        share.storage_class or "-",
        count_text(share.file_count),
        bytes_text(share.size_bytes),
        bar,
        meaning,
    )
