"""The rows of all landing files of 2013, by the hour in which they land, kept in the home.

Run as a program, this module writes them to a folder.

The year is written to a folder with a temporary name and then renamed, so an incomplete year is
never read. The final name contains the release of the data and `_EDITION`, so a year that was
prepared from other data or by other rules is not read either.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from heapq import merge
from operator import attrgetter
from pathlib import Path
from typing import Any

import pandas
import pyarrow
from pyarrow import parquet

from lakehouse.base.errors import Broken
from lakehouse.replay.files import (
    LandingFile,
    data_version,
    event_files,
    read_weather,
    weather_files,
)
from lakehouse.replay.flight_events import deliver, events_of, flights_of_the_year

_FLIGHT = (
    "flight_id",
    "flight_date",
    "carrier",
    "flight",
    "tailnum",
    "origin",
    "dest",
    "distance",
    "scheduled_departure",
)
_KNOWN_FROM_DEPARTURE = ("departed_at", "dep_delay")
_KNOWN_FROM_ARRIVAL = ("arrived_at", "arr_delay", "air_time")
# Columns in local time, which are dropped, because local time repeats an hour when summer time
# ends. The column `time_hour`, which stays, is in UTC.
_STATION_CLOCK = ["year", "month", "day", "hour"]
_SLICE_ROWS = 1 << 16
# A day or two of events: few enough that an hour is read in milliseconds.
_ROW_GROUP_ROWS = 1 << 12


def write_year(folder: Path) -> None:
    """Writes `weather.parquet`, and then the larger `events.parquet`, so that errors show early."""
    _write(folder / "weather.parquet", [observations()])
    _write(folder / "events.parquet", delivered_events())


def delivered_events() -> Iterator[pandas.DataFrame]:
    """All deliveries in landing order, in slices: the file's `hour`, and the event's columns."""
    flights = flights_of_the_year()
    deliveries = deliver(events_of(flights))
    deliveries["origin"] = flights.origin.astype("category").take(deliveries.row).to_numpy()
    deliveries = deliveries.sort_values(
        ["delivered", "origin", "event_time", "row", "event_rank"], ignore_index=True
    )
    for first in range(0, len(deliveries), _SLICE_ROWS):
        part = deliveries.iloc[first : first + _SLICE_ROWS].reset_index(drop=True)
        yield _known_rows(flights, part)


def observations() -> pandas.DataFrame:
    """All observations with their `hour`, sorted by hour and station."""
    weather = read_weather()
    hour = pandas.to_datetime(weather.time_hour, format="%Y-%m-%dT%H:%M:%SZ").dt.as_unit("s")
    rows = weather.drop(columns=_STATION_CLOCK)
    rows.insert(0, "hour", hour)
    return rows.sort_values(["hour", "origin"], ignore_index=True)


def _known_rows(flights: pandas.DataFrame, deliveries: pandas.DataFrame) -> pandas.DataFrame:
    """Each event with the state of its flight as known at the time of the event."""
    flight_of_event = flights.take(deliveries.row).reset_index(drop=True)
    has_arrived = deliveries.event_type == "arrived"
    has_departed = has_arrived | (deliveries.event_type == "departed")
    rows = deliveries[["event_id", "event_type", "event_rank", "event_time"]]
    rows.insert(0, "hour", deliveries.delivered)
    state = {
        **{name: flight_of_event[name] for name in _FLIGHT},
        **{name: flight_of_event[name].where(has_departed) for name in _KNOWN_FROM_DEPARTURE},
        **{name: flight_of_event[name].where(has_arrived) for name in _KNOWN_FROM_ARRIVAL},
    }
    return rows.assign(**state, cancelled=deliveries.event_type == "cancelled")


def _write(path: Path, slices: Iterable[pandas.DataFrame]) -> None:
    tables = (pyarrow.Table.from_pandas(part, preserve_index=False) for part in slices)
    first = next(tables)
    with parquet.ParquetWriter(path, first.schema, compression="zstd") as writer:
        writer.write_table(first, row_group_size=_ROW_GROUP_ROWS)
        for table in tables:
            writer.write_table(table, row_group_size=_ROW_GROUP_ROWS)


if __name__ == "__main__":
    write_year(Path(sys.argv[1]))


HOUR = timedelta(hours=1)
_EDITION = 1


@dataclass(frozen=True, kw_only=True)
class PreparedYear:
    """Reads the year that was prepared in `folder`, some hours at a time."""

    folder: Path

    def files(self, start: datetime, end: datetime) -> Iterator[LandingFile]:
        """The files of the hours from `start` to before `end`, sorted by hour and name."""
        flights = event_files(self._rows("events", start, end))
        weather = weather_files(self._rows("weather", start, end))
        return merge(flights, weather, key=attrgetter("hour", "name"))

    @cached_property
    def end(self) -> datetime:
        """The hour after the last file. Late events of 31 December land on 1 January 2014."""
        from pyarrow import parquet

        # Rows are sorted by `hour`, the first column, so the last row group has the last hour.
        metadata: Any = parquet.read_metadata(self.folder / "events.parquet")
        return metadata.row_group(metadata.num_row_groups - 1).column(0).statistics.max + HOUR

    def _rows(self, name: str, start: datetime, end: datetime) -> list[dict[str, Any]]:
        import pyarrow
        from pyarrow import parquet

        lower = pyarrow.scalar(start, pyarrow.timestamp("s"))
        upper = pyarrow.scalar(end, pyarrow.timestamp("s"))
        return parquet.read_table(
            self.folder / f"{name}.parquet", filters=[("hour", ">=", lower), ("hour", "<", upper)]
        ).to_pylist()


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
        [sys.executable, "-m", "lakehouse.replay.year", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        lines = result.stderr.strip().splitlines() or [f"exit code {result.returncode}"]
        raise Broken(f"the replay's year could not be prepared in {folder.parent}: {lines[-1]}")
