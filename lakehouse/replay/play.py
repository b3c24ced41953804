"""Lands the files of 2013 hour by hour, and continues where the last call stopped.

1. Take the lock in the home folder, so that only one replay at a time runs in a home. If the
   process dies, the kernel releases the lock.
2. Read the state, `_lakehouse/replay.json` in the store: where this lake's replay started, and the
   next hour.
3. Write the files of the next hour, each in one request and only if it does not exist. The first
   hour also writes the reference files.
4. When all files of the hour exist, advance the state by an hour.

**Safety properties** (tests in `test_play.py`)
- Past hours are not written again while the state exists, so a deleted file does not reappear.
- After a kill between steps 3 and 4, the same hour lands again with the same names and bytes;
  existing files are not overwritten.
- The start and the hour determine which files land. Events delivered before the start
  never land. Events delivered later land, even if an earlier event of their flight did not. The
  replay ends with the hour of the last delivery, early on 1 January 2014.
"""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from lakehouse.base.errors import Broken, Transient
from lakehouse.base.processes import hold_lock
from lakehouse.replay.files import (
    HOUR,
    LandingFile,
    PreparedYear,
    hour_text,
    prepare,
    reference_files,
)
from lakehouse.store import Store

STATE = "_lakehouse/replay.json"
FIRST = datetime(2013, 1, 1)
_HOURS_READ_AT_ONCE = 24
_FILES_WRITTEN_AT_ONCE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPosition:
    """Where a lake's replay started, and the hour that it lands next."""

    start: datetime
    next: datetime


def play(
    store: Store,
    home: Path,
    *,
    start: datetime = FIRST,
    until: datetime | None = None,
    hours: int | None = None,
) -> Played:
    """Lands the next hours: until `until` (exclusive), at most `hours`, or to the end of the year.

    `start` is the first hour of a new replay.

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
        position = _read_position(store) or ReplayPosition(start=start, next=start)
        end = min(year.end, until or year.end)
        if hours is not None:
            end = min(end, position.next + hours * HOUR)
        since = position.next
        file_count = 0
        event_count = 0
        for hour, files in _hours(year, position, end):
            with ThreadPoolExecutor(max_workers=_FILES_WRITTEN_AT_ONCE) as pool:
                names = [file.name for file in files]
                contents = [file.content for file in files]
                file_count += sum(pool.map(store.put_if_absent, names, contents))
            event_count += sum(file.event_count for file in files)
            position = ReplayPosition(start=position.start, next=hour + HOUR)
            state = {"start": hour_text(position.start), "next": hour_text(position.next)}
            store.put(STATE, json.dumps(state).encode())
    return Played(
        since=since,
        until=position.next,
        files=file_count,
        events=event_count,
        share=(position.next - position.start) / (year.end - position.start),
    )


def _hours(
    year: PreparedYear, position: ReplayPosition, end: datetime
) -> Iterator[tuple[datetime, list[LandingFile]]]:
    """Yields each hour to land with its files, including hours without files."""
    hour = position.next
    while hour < end:
        chunk_end = min(end, hour + _HOURS_READ_AT_ONCE * HOUR)
        files = year.files(hour, chunk_end)
        files_by_hour = {at: list(group) for at, group in groupby(files, key=attrgetter("hour"))}
        while hour < chunk_end:
            files_of_hour = files_by_hour.get(hour, [])
            if hour == position.start:
                files_of_hour = [*reference_files(hour), *files_of_hour]
            yield hour, files_of_hour
            hour += HOUR


def _read_position(store: Store) -> ReplayPosition | None:
    try:
        state = json.loads(store.read(STATE))
        return ReplayPosition(
            start=datetime.fromisoformat(state["start"]), next=datetime.fromisoformat(state["next"])
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise Broken(
            f"{STATE} cannot be read ({error!r}). Delete this file. The replay then starts again, "
            "and keeps existing files."
        ) from error
