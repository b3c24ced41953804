"""`lakehouse pause` and `lakehouse resume`: stop the upkeep of a table, and continue it."""

import re
from datetime import UTC, datetime
from typing import Any

import click

from lakehouse.cli.context import complete_table, open_table
from lakehouse.cli.output import attributes, json_option, show, write_json
from lakehouse.core.errors import Refused
from lakehouse.core.journal_records import Pause
from lakehouse.core.text import utc_text
from lakehouse.engine.clock import now_ms
from lakehouse.engine.journal.journal import Journal

_UNIT_MS = {"m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SPAN = re.compile(r"(\d{1,5})([mhd])")


@click.command(
    "pause",
    epilog="Example: lakehouse pause silver/flights --until 6h --why 'a backfill is under way'",
)
@click.argument("table", shell_complete=complete_table)
@click.option(
    "--until",
    metavar="TIME",
    help="End of the pause: 2026-12-01T06:00Z, or a span like 90m, 6h, 3d. Default: no end.",
)
@click.option("--why", default="", metavar="TEXT", help="Reason, which is shown with the pause.")
@json_option
def pause_command(table: str, until: str | None, why: str, as_json: bool) -> None:
    """Pause the upkeep of TABLE until a time, or until it is resumed.

    Compactions and vacuums of TABLE no longer start automatically. To start one by hand, use
    --anyway. A run in progress is not stopped. Writes continue. A second pause replaces the first.
    """
    opened, wanted = open_table(table)
    now = now_ms()
    pause = Pause(
        table=wanted.key,
        since_ms=now,
        until_ms=None if until is None else until_ms_of(until, now),
        why=" ".join(why.split()),
    )
    Journal(opened.lake.store).pause(pause)
    write_json(_document(pause, paused=True)) if as_json else show(
        f"{pause.table}: {pause.explanation.sentence}"
    )


@click.command("resume", epilog="Example: lakehouse resume silver/flights")
@click.argument("table", shell_complete=complete_table)
@json_option
def resume_command(table: str, as_json: bool) -> None:
    """End the pause of TABLE. A table that is not paused stays as it is."""
    opened, wanted = open_table(table)
    journal = Journal(opened.lake.store)
    pause = journal.pause_of(wanted.key)
    journal.resume(wanted.key)
    if as_json:
        write_json(_document(pause or Pause(table=wanted.key, since_ms=0), paused=False))
    else:
        show(
            f"{wanted.key}: "
            + (
                f"resumed; it was paused since {utc_text(pause.since_ms)}"
                if pause
                else "it was not paused"
            )
        )


def _document(pause: Pause, *, paused: bool) -> dict[str, Any]:
    """The pause in force, or the one that ended; `since_ms` is null if there was none."""
    return {
        "table": pause.table,
        "paused": paused,
        "since_ms": pause.since_ms or None,
        **attributes(pause, "until_ms", "why"),
    }


def until_ms_of(text: str, now: int) -> int:
    """The end of the pause: a span counted from now, or a timestamp (UTC without a time zone)."""
    hint = "Use a future time like 2026-12-01T06:00Z, or a span like 90m, 6h, 3d"
    if span := _SPAN.fullmatch(text.strip()):
        until = now + int(span[1]) * _UNIT_MS[span[2]]
    else:
        try:
            instant = datetime.fromisoformat(text.strip())
        except ValueError as error:
            raise Refused(f"--until is {text!r}. {hint}") from error
        until = int((instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp() * 1000)
    if until <= now:
        raise Refused(f"--until is {text!r}, which is not after {utc_text(now)}. {hint}")
    return until
