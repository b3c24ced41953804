"""`lakehouse compact`, `pause` and `resume`."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import Refused
from lakehouse.base.operation import Pause
from lakehouse.base.text import Document, utc_text
from lakehouse.cli.context import not_written, open_table, table_argument
from lakehouse.cli.dagster_events import report_to_dagster
from lakehouse.cli.output import (
    attributes,
    bytes_text,
    flag,
    json_option,
    print_figures,
    show,
    working,
    write_json,
)
from lakehouse.cli.server_command import driver_on_demand
from lakehouse.compact import run
from lakehouse.compact.assess import refuse_held
from lakehouse.compact.plan.compaction import CompactionPlan
from lakehouse.lake.lake import is_written
from lakehouse.lake.state_tables import pause_of, pause_table, resume_table
from lakehouse.watch.documents import address_field

if TYPE_CHECKING:
    from lakehouse.assets.events import Event, Reporter


@click.command("compact", epilog="Example: lakehouse compact silver/flights --dry-run")
@table_argument
@flag("--dry-run", help="Show only the plan. Does not start a JVM.")
@flag("--anyway", help="Also compact a table that is paused or opts out.")
@json_option
def compact_command(table: str, dry_run: bool, anyway: bool, as_json: bool) -> None:
    """Merge the small files of TABLE, and show predicted and actual figures.

    A table that is paused, or whose declaration opts out, is refused without --anyway. If nothing
    has to be merged, the table is not changed, and the reason is shown. A compaction changes no
    rows, so downstream tables are not updated.
    """
    context, declared_table = open_table(table)
    lake = context.lake
    table = declared_table.key
    if dry_run:
        plan = run.plan(lake, declared_table)
        if plan is None:
            raise not_written(declared_table, operation=f"compact {table}")
        if as_json:
            write_json({**plan.as_json(), **address_field(declared_table)})
        else:
            _print_plan(plan)
        return
    if not anyway:
        refuse_held(lake, declared_table)
    if not is_written(lake, table):
        raise not_written(declared_table, operation=f"compact {table}")
    with working(f"compacting {table}"), driver_on_demand(lake.settings) as spark:
        # A failure is not reported, because one of a person's compaction opens no breaker.
        outcome = run.compact(lake, spark, declared_table, by_person=True)

    def events(reporter: "Reporter") -> "Iterable[Event]":
        from lakehouse.compact.asset import compaction_events

        return compaction_events(reporter, declared_table, lake, outcome)

    report_to_dagster(lake.settings, f"{table} was compacted", events)
    document = outcome.as_json()
    if as_json:
        write_json(document)
    else:
        _print(document)


def _print(document: Document) -> None:
    version = f"version {document['version']}"
    if document["version_after"] is None:
        # No commit was made, even if files were planned, for example after another writer's commit.
        result = "the plan" if document["files_removed"] else "nothing to do"
        show(f"{document['table']}: {result} at {version}: {document['sentence']}")
    else:
        versions = f"{version} -> {document['version_after']}"
        show(f"{document['table']}: {versions}, {document['reason']}: {document['sentence']}")
        print_figures(document)
    for sentence in document["sentences"]:
        show(sentence)


def _print_plan(plan: CompactionPlan) -> None:
    """Prints the plan, the estimate, and the files of each bin."""
    show(f"{plan.table} at version {plan.version}: {plan.sentence}")
    if plan.bins:
        show(f"{plan.table}: {plan.estimate.sentence}; {plan.verify_sentence}")
    for bin_ in plan.bins:
        partition = ", ".join(f"{column}={value}" for column, value in bin_.partition)
        count = f"{len(bin_.files)} files, {bytes_text(bin_.size_bytes)}"
        show(f"{plan.table}, {partition or 'whole table'}: {count}")
        for file in bin_.files:
            show(f"  {bytes_text(file.size_bytes):>10}  {file.path}")


_UNIT_MS = {"m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(\d{1,5})([mhd])")


@click.command(
    "pause",
    epilog="Example: lakehouse pause silver/flights --until 6h --why 'a backfill is under way'",
)
@table_argument
@click.option(
    "--until",
    metavar="TIME",
    help="End of the pause: 2026-12-01T06:00Z, or a duration like 90m, 6h, 3d. Default: no end.",
)
@click.option(
    "--why", default="", metavar="TEXT", help="Reason, shown wherever the pause is reported."
)
@json_option
def pause_command(table: str, until: str | None, why: str, as_json: bool) -> None:
    """Pause the upkeep of TABLE until a time, or until it is resumed.

    During the pause, compactions, vacuums, archive runs and TTL runs of TABLE do not start
    automatically. To start one by hand, add --anyway to its command. A run in progress is not
    stopped. Writes continue. A second pause replaces the first.
    """
    context, declared_table = open_table(table)
    now = now_ms()
    pause = Pause(
        table=declared_table.key,
        since_ms=now,
        until_ms=None if until is None else until_ms_of(until, now),
        why=" ".join(why.split()),
    )
    pause_table(context.lake, pause)
    if as_json:
        write_json(_document(pause, paused=True))
    else:
        show(f"{pause.table}: {pause.explanation.sentence}")


@click.command("resume", epilog="Example: lakehouse resume silver/flights")
@table_argument
@json_option
def resume_command(table: str, as_json: bool) -> None:
    """End the pause of TABLE now. Does nothing if TABLE is not paused."""
    context, declared_table = open_table(table)
    table = declared_table.key
    pause = pause_of(context.lake, table)
    resume_table(context.lake, table)
    if as_json:
        no_pause = Pause(table=table, since_ms=0)
        write_json(_document(pause or no_pause, paused=False))
        return
    if pause is None:
        sentence = "it was not paused"
    else:
        sentence = f"resumed; it had been paused since {utc_text(pause.since_ms)}"
    show(f"{table}: {sentence}")


def _document(pause: Pause, *, paused: bool) -> Document:
    """The JSON document of both commands: the new pause, or the pause that was removed.

    `since_ms` is null if the table was not paused.
    """
    return {
        "table": pause.table,
        "paused": paused,
        "since_ms": pause.since_ms or None,
        **attributes(pause, "until_ms", "why"),
    }


def until_ms_of(text: str, now: int) -> int:
    """The end of a pause, in ms since 1970.

    `text` is a duration from `now`, or an ISO 8601 time, which is in UTC if it has no time zone.
    """
    hint = "Use a future time like 2026-12-01T06:00Z, or a duration like 90m, 6h, 3d"
    if duration := _DURATION.fullmatch(text.strip()):
        until = now + int(duration[1]) * _UNIT_MS[duration[2]]
    else:
        try:
            instant = datetime.fromisoformat(text.strip())
        except ValueError as error:
            raise Refused(f"--until is {text!r}. {hint}") from error
        if instant.tzinfo is None:
            instant = instant.replace(tzinfo=UTC)
        until = int(instant.timestamp() * 1000)
    if until <= now:
        raise Refused(f"--until is {text!r}, which is not after now ({utc_text(now)}). {hint}")
    return until
