"""`lakehouse archive`: moves old partitions to an archive, lists and expires archived partitions.

`archive_restore` has the command that brings them back.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import click

from lakehouse.cli.commands.archive_restore import partition_text, restore_command
from lakehouse.cli.context import LakeContext, complete_table, not_written, open_table
from lakehouse.cli.output import (
    bytes_text,
    count_text,
    json_option,
    print_figures,
    print_grid,
    show,
    tell,
    time_text,
    write_json,
)
from lakehouse.cli.spark_server import driver_for_command
from lakehouse.core.archive.contents import ArchiveContents
from lakehouse.core.archive.expire import expiry_times
from lakehouse.core.declaration.table import Table
from lakehouse.core.errors import Broken, Refused
from lakehouse.core.text import count_of, size_text
from lakehouse.engine.archive import run
from lakehouse.engine.archive.expire import rehearse_expire
from lakehouse.engine.archive.records import archive_contents


@click.group("archive", epilog="Example: lakehouse archive plan bronze/flight_events")
def archive_command() -> None:
    """Move old partitions of a table to a Parquet archive, and bring them back.

    A table declares its archive with Table(archive=Archive(older_than_days=31)).
    """


archive_command.add_command(restore_command)


@archive_command.command("plan", epilog="Example: lakehouse archive plan bronze/flight_events")
@click.argument("table", shell_complete=complete_table)
@json_option
def plan_command(table: str, as_json: bool) -> None:
    """Show which partitions of TABLE would move now, why, and at what cost.

    Nothing is changed, and no JVM starts.
    """
    context, declared_table = open_table(table)
    table = declared_table.key
    plan = run.plan(context.lake, declared_table, context.tables.values())
    if plan is None:
        raise not_written(declared_table, operation=f"archive of {table}")
    document = plan.as_json()
    if as_json:
        write_json(document)
    else:
        _print_archive(document)


@archive_command.command("run", epilog="Example: lakehouse archive run bronze/flight_events")
@click.argument("table", shell_complete=complete_table)
@click.option("--anyway", is_flag=True, help="Also archive a table that is paused.")
@json_option
def run_command(table: str, anyway: bool, as_json: bool) -> None:
    """Move the old partitions of TABLE to its archive, through Dagster.

    Downstream tables keep their rows, except tables that read all rows of TABLE in each run. A
    later vacuum deletes the moved files from the table's folder.
    """
    context, declared_table = open_table(table)
    table = declared_table.key
    if run.plan(context.lake, declared_table) is None:  # also refuses a table without an archive
        raise not_written(declared_table, operation=f"archive of {table}")
    document = _through_dagster(context, declared_table, only="archive", anyway=anyway)
    if as_json:
        write_json(document)
    else:
        _print_archive(document)


@archive_command.command(
    "expire", epilog="Example: lakehouse archive expire bronze/flight_events --dry-run"
)
@click.argument("table", shell_complete=complete_table)
@click.option(
    "--dry-run",
    is_flag=True,
    help="List every file that would be deleted. Does not delete files or start a JVM.",
)
@click.option("--anyway", is_flag=True, help="Also delete from the archive of a paused table.")
@json_option
def expire_command(table: str, dry_run: bool, anyway: bool, as_json: bool) -> int:
    """Delete archived partitions of TABLE whose Archive.keep_days have passed.

    Also deletes the archived files of partitions that were restored into TABLE longer ago than the
    table's retention.
    """
    context, declared_table = open_table(table)
    table = declared_table.key
    plan = rehearse_expire(context.lake, declared_table)
    if plan is None:
        raise not_written(declared_table, operation=f"archive of {table}")
    if declared_table.archive is None and not dry_run:
        raise Refused(
            f"archive expire of {table}: the table declares no archive. Use "
            "Table(archive=Archive(keep_days=…)) to declare how long partitions are kept"
        )
    if dry_run:
        document = plan.as_json()
    else:
        document = _through_dagster(context, declared_table, only="expire", anyway=anyway)
    if as_json:
        write_json(document)
    else:
        if dry_run:
            for name in plan.files:
                show(name)
        show(f"{table}: {document['sentence']}")
    if document.get("failed"):  # the files that could not be deleted; the other files were deleted
        tell(f"{Broken.__name__}: archive expire of {table}: {document['sentence']}")
        return Broken.exit_code
    return 0


@archive_command.command("list", epilog="Example: lakehouse archive list bronze/flight_events")
@click.argument("table", shell_complete=complete_table)
@json_option
def list_command(table: str, as_json: bool) -> None:
    """Show the archived partitions of TABLE: their sizes, and when they expire."""
    context, declared_table = open_table(table)
    table = declared_table.key
    facts = context.lake.facts(table)
    if facts is None:
        raise not_written(declared_table, operation=f"archive of {table}")
    contents = archive_contents(context.lake, facts)
    document = list_document(declared_table, facts.snapshot.version, contents)
    if as_json:
        write_json(document)
        return
    rows = [
        (
            partition_text(each["values"]),
            count_text(each["rows"]),
            bytes_text(each["bytes"]),
            time_text(each["archived_ms"]),
            each["storage_class"],
            time_text(each["expires_ms"]),
        )
        for each in document["partitions"]
    ]
    if rows:
        heads = ("partition", "rows", "bytes", "archived on", "class", "expires on")
        print_grid(heads, rows, numbers=("rows", "bytes"))
    show(f"{table}: {document['sentence']}")


def list_document(table: Table, version: int, contents: ArchiveContents) -> dict[str, Any]:
    """The JSON document of an archive's contents.

    A partition has one entry for each archive operation that moved rows of it.
    """
    keep_days = None if table.archive is None else table.archive.keep_days
    expires_ms = expiry_times(contents, keep_days)
    partitions = [
        {
            "values": dict(each.partition),
            "rows": each.row_count,
            "bytes": each.size_bytes,
            "files": len(each.files),
            "archived_ms": each.created_ms,
            "storage_class": each.storage_class,
            "expires_ms": expires_ms.get(each.partition),
        }
        for each in sorted(contents.partitions, key=lambda each: (each.start_ms, each.number))
    ]
    distinct = {each.partition for each in contents.partitions}
    sentence = "the archive is empty"
    if partitions:
        sentence = (
            f"{count_of(len(distinct), 'partition')} in the archive: {contents.row_count:,} rows,"
            f" {size_text(contents.size_bytes)}"
        )
    return {
        "table": table.key,
        "version": version,
        "rows": contents.row_count,
        "bytes": contents.size_bytes,
        "partitions": partitions,
        "sentence": sentence,
    }


def _through_dagster(
    context: LakeContext, table: Table, *, only: str, anyway: bool
) -> Mapping[str, Any]:
    """Runs one step of the table's archive asset in this process.

    `only` is the step: `archive` or `expire`. Returns the step's JSON document.
    """
    from lakehouse.cli.dagster_runs import open_recorder

    settings = context.lake.settings
    needs_spark = only != "expire"
    driver = driver_for_command(settings) if needs_spark else nullcontext()
    with open_recorder(settings) as recorder, driver:
        config = {"anyway": anyway, "only": only}
        [run] = recorder.materialize([f"archive/{table.key}"], config=config)
    return run.outcome()[f"lakehouse/{only}"]


def _print_archive(document: Mapping[str, Any]) -> None:
    rows = [
        (
            partition_text(each["values"]),
            count_text(each["rows"]),
            count_text(each["files"]),
            bytes_text(each["bytes"]),
            "written again" if each["rewritten"] else "copied",
        )
        for each in document["partitions"]
    ]
    table = document["table"]
    if rows:
        heads = ("partition", "rows", "files", "bytes", "how")
        print_grid(heads, rows, numbers=("rows", "files", "bytes"))
    show(f"{table}: {document['sentence']}")
    if rows:
        show(f"{table}: predicted: {_predicted_text(document)}")
        deleted_by = time_text(document["bytes_leave_ms"])
        show(f"{table}: daily vacuums delete the moved files by {deleted_by}")
    for note in document["notes"]:
        show(f"{table}: {note}")
    print_figures(document)


def _predicted_text(document: Mapping[str, Any]) -> str:
    saved = document["usd_per_month_saved"]
    text = f"{document['seconds']:.1f} s, {document['usd']:.6f} USD"
    if not saved:  # on a disk, or nothing moves
        return text
    text += f", and {document['usd_of_both_copies']:.6f} USD while both copies exist; "
    if saved > 0:
        return f"{text}{saved:.6f} USD a month are saved afterwards"
    return (
        f"{text}{-saved:.6f} USD a month more afterwards, because the storage class of the archive"
        " bills small files as larger ones"
    )
