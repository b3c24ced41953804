"""`lakehouse replay`: lands the next hours of a real year of flights."""

from datetime import datetime

import click

from lakehouse.base.errors import Refused
from lakehouse.base.text import Document
from lakehouse.cli.output import attributes, json_option, show, write_json
from lakehouse.cli.settings import settings_in_force
from lakehouse.lake.lake import open_lake
from lakehouse.replay.play import FIRST, Played, play

_LAST = datetime(2014, 1, 2)


@click.command("replay", epilog="Example: lakehouse replay --until 2013-01-08")
@click.option(
    "--until",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="DATE",
    help="Land all hours before this day.",
)
@click.option(
    "--hours",
    type=click.IntRange(min=1),
    metavar="N",
    help="Land at most this many hours of the replayed year.",
)
@json_option
def replay_command(until: datetime | None, hours: int | None, as_json: bool) -> None:
    """Land the next hours of a real year of flights.

    Flights and weather of 2013 land as files. Without --until and --hours, LAKEHOUSE_REPLAY_HOURS
    hours land, as in each tick of `lakehouse up`. Each call continues where the last one stopped.
    """
    settings = settings_in_force()
    if settings.replay == "off":
        raise Refused(
            "replay: LAKEHOUSE_REPLAY is off in this lake. Use LAKEHOUSE_REPLAY=on; flights then "
            "land among your own files"
        )
    if until is not None and not FIRST < until <= _LAST:
        raise Refused(
            f"replay: --until is {until:%Y-%m-%d}. Use a day after {FIRST:%Y-%m-%d}, at most "
            f"{_LAST:%Y-%m-%d}"
        )
    if until is None and hours is None:
        hours = settings.replay_hours
    played = play(open_lake(settings).store, settings.home, until=until, hours=hours)
    if as_json:
        write_json(replay_document(played))
        return
    show(played.sentence)
    if played.files:
        show("next: lakehouse materialize")


def replay_document(played: Played) -> Document:
    """The JSON document of a replay."""
    return {
        "since": played.since.isoformat(),
        "until": played.until.isoformat(),
        "share": round(played.share, 4),
        **attributes(played, "files", "events", "finished", "sentence"),
    }
