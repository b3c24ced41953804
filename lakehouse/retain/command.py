"""`lakehouse archive`, `lakehouse restore` and `lakehouse ttl`."""

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import click

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
from lakehouse.core.declaration.adopted import is_address, parse_address
from lakehouse.core.declaration.table import Table, check_key
from lakehouse.core.errors import Refused
from lakehouse.core.text import count_of, size_text
from lakehouse.engine.lake import TableSession
from lakehouse.retain.plan.archive import (
    ArchiveFacts,
    RestoreRequest,
    archived_partitions,
    bytes_of,
    parsed_values,
    rows_of,
)
from lakehouse.retain.run import archive as archive_run
from lakehouse.retain.run import ttl as ttl_run

_DAY = click.DateTime(["%Y-%m-%d"])
_ANYWAY = click.option("--anyway", is_flag=True, help="Also if the table is paused.")
_DRY_RUN = click.option("--dry-run", is_flag=True, help="Show only the plan. Starts no JVM.")
_PARTITIONS = "COLUMN=VALUE"


@click.command("archive", epilog="Example: lakehouse archive bronze/flight_events --dry-run")
@click.argument("table", shell_complete=complete_table)
@_DRY_RUN
@click.option("--list", "listed", is_flag=True, help="Show what the archive has, until when.")
@click.option(
    "--replace",
    multiple=True,
    metavar=_PARTITIONS,
    help="Rows of these partitions replace the archived rows.",
)
@_ANYWAY
@json_option
def archive_command(
    table: str, dry_run: bool, listed: bool, replace: tuple[str, ...], anyway: bool, as_json: bool
) -> None:
    """Move old partitions of TABLE to its archive, and delete expired ones from it.

    A table declares its archive with Table(archive=Archive(older_than_days=31, keep_days=183)).
    Downstream tables keep their rows, except tables that read all rows of TABLE in each run.
    """
    context, declared_table = open_table(table)
    key = declared_table.key
    if listed:
        _list(context, declared_table.key, as_json=as_json)
        return
    values = [parsed_values(text) for text in replace]
    asked = archive_run.ArchiveRequest(declared=tuple(context.tables.values()), replace=values)
    plan = archive_run.plan(context.lake, declared_table, asked)
    if plan is None:
        raise not_written(declared_table, operation=f"archive of {key}")
    document: Mapping[str, Any] = plan.as_json()
    if not dry_run:
        config = {"anyway": anyway, "replace": [*replace]}
        document = _through_dagster(context, "archive", key, config)
    if as_json:
        write_json(document)
        return
    sides = (("leaves the table", "partitions"), ("expires", "expiring"))
    rows = [
        (
            _partition_text(each["values"]),
            what,
            count_text(each["rows"]),
            count_text(each["files"]),
            bytes_text(each["bytes"]),
        )
        for what, side in sides
        for each in document[side]
    ]
    if rows:
        heads = ("partition", "what", "rows", "files", "bytes")
        print_grid(heads, rows, numbers=heads[2:])
    _print(document)


def _list(context: LakeContext, key: str, *, as_json: bool) -> None:
    table = context.tables[key]
    state = archive_run.read_state(context.lake, key)
    if state is None:
        raise not_written(table, operation=f"archive of {key}")
    facts = archive_run.archive_facts(context.lake, state)
    document = list_document(table, facts, state.number)
    if as_json:
        write_json(document)
        return
    rows = [
        (
            _partition_text(each["values"]),
            count_text(each["rows"]),
            bytes_text(each["bytes"]),
            time_text(each["expires_ms"]),
        )
        for each in document["partitions"]
    ]
    if rows:
        print_grid(("partition", "rows", "bytes", "expires on"), rows, numbers=("rows", "bytes"))
    show(f"{key}: {document['sentence']}")


def list_document(table: Table, facts: ArchiveFacts, number: int) -> dict[str, Any]:
    """The JSON document of an archive's contents; `number` is the version that the table names."""
    partitions = archived_partitions(facts, table.archive)
    rows = rows_of(partitions)
    many = count_of(len(partitions), "partition")
    size = size_text(bytes_of(partitions))
    counted = "" if rows is None else f"{rows:,} rows, "
    return {
        "table": table.key,
        "number": number,
        "partitions": [each.as_json() for each in partitions],
        "sentence": f"{many} in the archive: {counted}{size}"
        if partitions
        else "the archive is empty",
    }


@click.command("ttl", epilog="Example: lakehouse ttl bronze/weather --dry-run")
@click.argument("table", shell_complete=complete_table)
@_DRY_RUN
@_ANYWAY
@json_option
def ttl_command(table: str, dry_run: bool, anyway: bool, as_json: bool) -> None:
    """Delete expired rows of TABLE.

    A table declares when its rows expire: Table(ttl=Ttl(column="event_time", days=365)). A later
    vacuum deletes the files that held the rows.
    """
    context, declared_table = open_table(table)
    key = declared_table.key
    plan = ttl_run.plan(context.lake, declared_table)
    if plan is None:
        raise not_written(declared_table, operation=f"ttl of {key}")
    document: Mapping[str, Any] = plan.as_json()
    if not dry_run:
        document = _through_dagster(context, "ttl", key, {"anyway": anyway})
    if as_json:
        write_json(document)
        return
    least, most = count_text(document["least_rows"]), count_text(document["most_rows"])
    if document["expired_files"] or document["straddling_files"]:
        show(f"{key}: at least {least} and at most {most} rows")
    _print(document)


def _print(document: Mapping[str, Any]) -> None:
    table = document["table"]
    show(f"{table}: {document['sentence']}")
    for note in document["notes"]:
        show(f"{table}: {note}")
    print_figures(document)


def _through_dagster(
    context: LakeContext, operation: str, key: str, config: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Runs the operation's asset in this process; returns the outcome's JSON document."""
    from lakehouse.cli.dagster_runs import open_recorder

    settings = context.lake.settings
    with open_recorder(settings) as recorder, driver_for_command(settings):
        [run] = recorder.materialize([f"{operation}/{key}"], config=dict(config))
    return run.outcome()[f"lakehouse/{operation}"]


@click.command(
    "restore",
    epilog="Examples: lakehouse restore bronze/flight_events --to bronze/january --until"
    " 2013-02-01; lakehouse restore bronze/flight_events --into-source --partition"
    " event_date=2013-01-05",
)
@click.argument("table", shell_complete=complete_table)
@click.option(
    "--to",
    "place",
    metavar="PLACE",
    help="The new table: layer/name in this lake, an empty folder, or s3://bucket/folder.",
)
@click.option("--into-source", is_flag=True, help="Bring the partitions back into TABLE itself.")
@click.option(
    "--partition",
    "partitions",
    multiple=True,
    metavar=_PARTITIONS,
    help="Only partitions with this value. For several columns: COLUMN=VALUE,COLUMN=VALUE.",
)
@click.option(
    "--since", type=_DAY, metavar="DATE", help="Only partitions that begin then or later."
)
@click.option("--until", type=_DAY, metavar="DATE", help="Only partitions that end by then.")
@_DRY_RUN
@json_option
def restore_command(table: str, dry_run: bool, as_json: bool, **chosen: Any) -> None:
    """Restore archived partitions of TABLE. Default: all partitions.

    With --to, a new table gets the rows, and the archive keeps them. With --into-source, the rows
    return to TABLE and leave the archive. Downstream tables do not read these rows again. Days are
    in UTC.
    """
    from lakehouse.engine.spark.open_session import connect
    from lakehouse.retain.run.read import restore_plan, run_restore

    context, declared_table = open_table(table)
    request = _request(context, chosen)
    lake = context.lake
    plan = restore_plan(lake, declared_table, request)
    document = plan.as_json()
    if plan.partitions and not dry_run:
        with driver_for_command(lake.settings):
            session = TableSession(lake=lake, spark=connect(lake.settings), table=declared_table)
            plan, version, seconds = run_restore(session, request, tell=tell)
        document = {**plan.as_json(), "version_after": version, "seconds": round(seconds, 3)}
        if not request.target and version is not None:
            _report(context, declared_table.key, plan.sentence)
    if as_json:
        write_json(document)
        return
    for each in plan.partitions if dry_run else ():
        show(each.text)
    show(f"{plan.table}: {plan.sentence}")
    if "version_after" in document:
        show(f"{plan.table}: done in version {document['version_after']}")


def _request(context: LakeContext, chosen: Mapping[str, Any]) -> RestoreRequest:
    place = chosen["place"]
    if (place is None) != chosen["into_source"]:
        raise Refused("restore: use either --to PLACE or --into-source")
    return RestoreRequest(
        target="" if place is None else _target(context, place),
        values=[parsed_values(text) for text in chosen["partitions"]],
        since_ms=_ms(chosen["since"]),
        until_ms=_ms(chosen["until"]),
    )


def _target(context: LakeContext, place: str) -> str:
    """The address of the new table that `place` names: a key in the lake, or an address."""
    root = context.lake.settings.root
    if not is_address(place):
        check_key("--to", place)
        if place in context.tables:
            raise Refused(f"restore: table {place} is declared. Use a key of a new table")
        return f"{root}/{place}"
    address = parse_address(place, base=os.getcwd())
    if address == root or address.startswith(f"{root}/"):
        raise Refused(f"restore: {address} is in the lake. Use layer/name")
    return address


def _ms(day: datetime | None) -> int | None:
    return None if day is None else round(day.replace(tzinfo=UTC).timestamp() * 1_000)


def _partition_text(values: Mapping[str, str | None]) -> str:
    return "/".join(f"{name}={'null' if text is None else text}" for name, text in values.items())


def _report(context: LakeContext, key: str, sentence: str) -> None:
    """Reports the restore to Dagster, on the table's page."""
    from lakehouse.cli.dagster_runs import report_change

    table = context.tables[key]
    report_change(
        context.lake.settings,
        f"archived rows of {key} are restored",
        lambda recorder: recorder.report_restore(table, context.lake, sentence),
    )
