"""`lakehouse archive restore`: brings archived partitions back."""

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import click

from lakehouse.cli.context import LakeContext, complete_table, open_table
from lakehouse.cli.output import json_option, show, tell, write_json
from lakehouse.cli.spark_server import driver_for_command
from lakehouse.core.archive.restore_plan import RestoreOutcome, RestorePlan, RestoreRequest
from lakehouse.core.declaration.adopted import is_address, parse_address
from lakehouse.core.declaration.table import Table, check_key
from lakehouse.core.errors import Refused
from lakehouse.engine.archive.restore import plan_restore, run_restore
from lakehouse.engine.lake import TableSession
from lakehouse.engine.spark.open_session import connect

_DAY = click.DateTime(["%Y-%m-%d"])


@click.command(
    "restore",
    epilog="Examples: lakehouse archive restore bronze/flight_events --to bronze/january --until"
    " 2013-02-01; lakehouse archive restore bronze/flight_events --into-source --partition"
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
    metavar="COLUMN=VALUE",
    help="Only partitions with this value. For several columns: COLUMN=VALUE,COLUMN=VALUE. If given"
    " several times, partitions that match any of them.",
)
@click.option(
    "--since", type=_DAY, metavar="DATE", help="Only partitions that begin on this day or later."
)
@click.option(
    "--until", type=_DAY, metavar="DATE", help="Only partitions that end before this day begins."
)
@click.option("--dry-run", is_flag=True, help="Show only the plan. Does not start a JVM.")
@json_option
def restore_command(table: str, dry_run: bool, as_json: bool, **chosen: Any) -> None:
    """Restore archived partitions of TABLE. Default: all partitions.

    With --to, a new table gets the rows, and the archive keeps them. With --into-source, the rows
    return to TABLE in one commit, and leave the archive. Downstream tables do not read these rows
    again. Days are in UTC.
    """
    context, declared_table = open_table(table)
    request = restore_request(context, chosen)
    plan = plan_restore(context.lake, declared_table, request)
    if dry_run:
        if as_json:
            write_json(plan.as_json())
            return
        for values in plan.values:
            show(partition_text(dict(values)))
        _print(plan, plan.sentence)
        return
    if plan.partitions:
        outcome = _restore(context, declared_table, request)
    else:
        outcome = RestoreOutcome(plan=plan, version_after=None, seconds=0.0)
    if as_json:
        write_json(outcome.as_json())
    else:
        _print(outcome.plan, outcome.sentence)


def _restore(context: LakeContext, table: Table, request: RestoreRequest) -> RestoreOutcome:
    settings = context.lake.settings
    with driver_for_command(settings):
        session = TableSession(lake=context.lake, spark=connect(settings), table=table)
        outcome = run_restore(session, request, tell=tell)
        if not request.target and outcome.version_after is not None:
            _report(context, table, outcome.sentence)
    return outcome


def _print(plan: RestorePlan, sentence: str) -> None:
    show(f"{plan.table}: {sentence}")
    for note in plan.notes:
        show(f"{plan.table}: {note}")


def restore_request(context: LakeContext, chosen: Mapping[str, Any]) -> RestoreRequest:
    """The request that the options `chosen` describe.

    Raises:
        Refused: not exactly one of --to and --into-source is given, --to names a declared table or
            an address in the lake, or --partition cannot be parsed.
    """
    place = chosen["place"]
    into_source = chosen["into_source"]
    if (place is None) != into_source:
        raise Refused("archive restore: use either --to PLACE or --into-source")
    return RestoreRequest(
        target="" if place is None else _target(context, place),
        values=[_values(text) for text in chosen["partitions"]],
        since_ms=_ms(chosen["since"]),
        until_ms=_ms(chosen["until"]),
    )


def _target(context: LakeContext, place: str) -> str:
    """The address of the new table that `place` names: a key in the lake, or an address."""
    root = context.lake.settings.root
    if not is_address(place):
        check_key("--to", place)
        if place in context.tables:
            raise Refused(f"archive restore: table {place} is declared. Use a key of a new table")
        return f"{root}/{place}"
    address = parse_address(place, base=os.getcwd())
    if address == root or address.startswith(f"{root}/"):
        raise Refused(f"archive restore: {address} is in the lake. Use layer/name")
    return address


def _values(text: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in text.split(",")]
    if any(not name or not equals for name, equals, _ in pairs):
        raise Refused(f"archive restore: --partition is {text!r}. Use COLUMN=VALUE")
    return {name: value for name, _, value in pairs}


def _ms(day: datetime | None) -> int | None:
    return None if day is None else round(day.replace(tzinfo=UTC).timestamp() * 1_000)


def partition_text(values: Mapping[str, str | None]) -> str:
    """The partition as text, for example `event_date=2013-01-05/event_hour=7`."""
    return "/".join(f"{name}={'null' if text is None else text}" for name, text in values.items())


def _report(context: LakeContext, table: Table, sentence: str) -> None:
    """Reports the restore to Dagster, on the table's page."""
    from lakehouse.cli.dagster_runs import report_change

    report_change(
        context.lake.settings,
        f"archived rows of {table.key} are restored",
        lambda recorder: recorder.report_restore(table, context.lake, sentence),
    )
