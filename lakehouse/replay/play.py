"""Lands the year, hour after hour, and goes on where it stopped.

1. One replay at a time works for a lake on this machine (a lock in the state folder, freed by the kernel when a process dies).
2. The state, `_lakehouse/replay.json` in the store, says where this lake's replay started and which hour is next.
3. The files of the next hour are written, each whole and only if its name is free; with the first hour, the references too.
4. When all of them are there, the state moves on by that hour.

**Safety properties** (tests in `test_play.py`)
- An hour before the state's is never written again, so a file that a person removed stays away.
- A kill between 3 and 4 lands one hour again: the same names and bytes, and files that are still
  there are not written.
- What lands depends on the start and the hour alone. Events delivered before the start are never
  landed, those of earlier flights delivered after it are. The end is the hour after the year's last
  delivery, early on 1 January 2014.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from lakehouse.core.errors import Broken, Refused, Transient
from lakehouse.engine.store import Store
from lakehouse.replay.files import LandingFile, hour_text, reference_files
from lakehouse.replay.prepared_year import HOUR, World, prepare
from lakehouse.runtime.processes import hold_lock

STATE = "_lakehouse/replay.json"
_HOURS_READ_AT_ONCE = 24
_FILES_WRITTEN_AT_ONCE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """The work of one call: the hours from `since` to before `until` (UTC, without a zone), new files, and the flight events in them.

    `share` is how much of the way from the replay's start to the year's end lies behind.
    """

    since: datetime
    until: datetime
    files: int
    events: int
    share: float

    @property
    def finished(self) -> bool:
        """Whether the year's last delivery has landed."""
        return self.share >= 1

    @property
    def sentence(self) -> str:
        """The work as a person reads it."""
        if self.since == self.until:
            return f"landed nothing: {'the year is over' if self.finished else f'{hour_text(self.until)} is next'}"
        hours = f"{hour_text(self.since)} to {hour_text(self.until - HOUR)}"
        return f"landed {hours}: {self.files:,} files, {self.events:,} events; {self.share:.1%} of the year"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPosition:
    """The start of a lake's replay, and the hour that it lands next."""

    start: datetime
    next: datetime


def play(
    store: Store,
    home: Path,
    *,
    start: datetime,
    until: datetime | None = None,
    hours: int | None = None,
    changes: str = "off",
    on_progress: Callable[[Played], None] | None = None,
) -> Played:
    """Lands the hours that are next, up to `until` (not included), at most `hours` of them, or to the year's end.

    `start` is the first hour, where no replay has begun yet. `changes` has flights land as change data: dms or debezium. `on_progress`
    hears of the files landed so far after each hour.

    Raises:
        Refused: this lake's replay started at another hour than `start`.
        Transient: another replay is at work for this lake.
    """
    lock = home / "replay" / "lock"
    at_work = Transient(
        f"another replay lands files for this lake (it holds {lock}); try again when it has ended"
    )
    with hold_lock(lock, seconds=0, refusal=at_work):
        world = prepare(home)
        stand = _stand(store, start)
        end = min(
            world.end, until or world.end, world.end if hours is None else stand.next + hours * HOUR
        )
        played = Played(
            since=stand.next,
            until=stand.next,
            files=0,
            events=0,
            share=_share(stand, stand.next, world),
        )
        for hour, landing in _hours(world, stand, end, changes):
            played = Played(
                since=stand.next,
                until=hour + HOUR,
                files=played.files + _land(store, landing),
                events=played.events + sum(file.event_count for file in landing),
                share=_share(stand, hour + HOUR, world),
            )
            _record(store, ReplayPosition(start=stand.start, next=hour + HOUR))
            if on_progress:
                on_progress(played)
    return played


def next_hour(store: Store) -> datetime | None:
    """The hour that the lake's replay lands next; `None` where none has begun."""
    stand = _read_stand(store)
    return stand.next if stand else None


def _share(stand: ReplayPosition, hour: datetime, world: World) -> float:
    return (hour - stand.start) / (world.end - stand.start)


def _hours(
    world: World, stand: ReplayPosition, end: datetime, changes: str
) -> Iterator[tuple[datetime, list[LandingFile]]]:
    """Every hour to land, also one without files."""
    hour = stand.next
    while hour < end:
        chunk_end = min(end, hour + _HOURS_READ_AT_ONCE * HOUR)
        found = world.files(hour, chunk_end, changes=changes, first=stand.start)
        files = {at: list(group) for at, group in groupby(found, key=attrgetter("hour"))}
        while hour < chunk_end:
            first = reference_files(hour) if hour == stand.start else ()
            yield hour, [*first, *files.get(hour, ())]
            hour += HOUR


def _land(store: Store, files: Sequence[LandingFile]) -> int:
    """The number of files that were not there yet; all are there now."""
    with ThreadPoolExecutor(max_workers=_FILES_WRITTEN_AT_ONCE) as pool:
        return sum(pool.map(lambda file: store.put_if_absent(file.name, file.content), files))


def _stand(store: Store, start: datetime) -> ReplayPosition:
    stand = _read_stand(store) or ReplayPosition(start=start, next=start)
    if stand.start != start:
        raise Refused(
            f"LAKEHOUSE_REPLAY_START is {start:%Y-%m-%d}, but this lake's replay started at {stand.start:%Y-%m-%d} and is at "
            f"{hour_text(stand.next)}; accepted: {stand.start:%Y-%m-%d}, or another LAKEHOUSE_ROOT"
        )
    return stand


def _read_stand(store: Store) -> ReplayPosition | None:
    try:
        known = json.loads(store.read(STATE))
        return ReplayPosition(
            start=datetime.fromisoformat(known["start"]), next=datetime.fromisoformat(known["next"])
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise Broken(
            f"{STATE} does not say where the replay is ({error!r}); delete it to have the year landed from its start"
        ) from error


def _record(store: Store, stand: ReplayPosition) -> None:
    store.put(
        STATE, json.dumps({"start": hour_text(stand.start), "next": hour_text(stand.next)}).encode()
    )
