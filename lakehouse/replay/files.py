"""The landing files: what lands when, under which name, and the very bytes of it.

- `landing/flight_events/2013-01-01T05-JFK.json` holds what was delivered from 05:00 to 06:00 UTC of flights from JFK, an event per line.
- `landing/weather/2013-01-01T05-JFK.json` holds what JFK's station observed at 05:00 UTC: one line, every value the station's own text.
- `landing/reference/planes/2013-01-01T00.csv` and its like are the package's files as they are; they land at the start of a replay.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any

from lakehouse.replay.nycflights13_files import REFERENCES, read_reference

_by_file = itemgetter("hour", "origin")


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingFile:
    """Lands under `name` when `hour` (UTC, without a zone) has passed; `event_count` is 0 where it holds no flight events."""

    hour: datetime
    name: str
    content: bytes
    event_count: int = 0


def event_files(rows: Iterable[Mapping[str, Any]]) -> Iterator[LandingFile]:
    """A file per hour and origin; `rows` are sorted by these, and tell an event each, beside the `hour` in which it is delivered."""
    for (hour, origin), group in groupby(rows, key=_by_file):
        lines = [_line(row) for row in group]
        yield LandingFile(hour=hour, name=_name("flight_events", hour, origin), content=b"".join(lines), event_count=len(lines))


def weather_files(rows: Iterable[Mapping[str, Any]]) -> Iterator[LandingFile]:
    """A file per observation, which is the row without its `hour`."""
    for row in rows:
        yield LandingFile(hour=row["hour"], name=_name("weather", row["hour"], row["origin"]), content=_line(row))


def reference_files(hour: datetime) -> Iterator[LandingFile]:
    """The files that land once, with a replay that starts at `hour`."""
    for name in REFERENCES:
        yield LandingFile(hour=hour, name=f"landing/reference/{name}/{_stamp(hour)}.csv", content=read_reference(name))


def _name(folder: str, hour: datetime, origin: str) -> str:
    return f"landing/{folder}/{_stamp(hour)}-{origin}.json"


def _stamp(hour: datetime) -> str:
    return f"{hour:%Y-%m-%dT%H}"


def _line(row: Mapping[str, Any]) -> bytes:
    told = {name: value for name, value in row.items() if name != "hour"}
    return json.dumps(told, separators=(",", ":"), default=_utc).encode() + b"\n"


def _utc(time: datetime) -> str:
    return f"{time.isoformat()}Z"
