"""Landing: every hour once, wherever it was stopped."""

import json
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from lakehouse.base.errors import Broken, Transient
from lakehouse.replay.play import STATE, PreparedYear, data_folder, play, reference_files
from lakehouse.store import DiskStore, Store
from lakehouse_tests.memory_store import MemoryStore

START = datetime(2013, 1, 1)
HOUR = timedelta(hours=1)


def landed(store: MemoryStore) -> dict[str, bytes]:
    return {file.name: store.read(file.name) for file in store.list("landing")}


def begin_at(store: Store, start: datetime) -> None:
    """The state of a replay that has landed no hour before, and the reference files."""
    for file in reference_files():
        store.put(file.name, file.content)
    store.put(STATE, json.dumps({"next": f"{start:%Y-%m-%dT%H}"}).encode())


class Dying(MemoryStore):
    """A store whose process ends with the write of one name, before or after it."""

    def __init__(self, at: str, *, after: bool) -> None:
        super().__init__()
        self.at, self.after, self.alive = at, after, True

    def put_if_absent(self, name: str, data: bytes) -> bool:
        return self._dies_at(name, lambda: super(Dying, self).put_if_absent(name, data))

    def put(self, name: str, data: bytes) -> None:
        self._dies_at(f"{name} {data.decode()}", lambda: super(Dying, self).put(name, data))

    def _dies_at(self, name, write):
        dies = self.alive and self.at in name
        if dies and not self.after:
            self.alive = False
            raise KeyboardInterrupt
        answer = write()
        if dies:
            self.alive = False
            raise KeyboardInterrupt
        return answer


def test_a_replay_lands_the_world_and_the_references(home: Path, world: PreparedYear) -> None:
    store = MemoryStore()
    played = play(store, home, until=datetime(2013, 1, 3))
    files = landed(store)
    wanted = {file.name: file.content for file in world.files(START, datetime(2013, 1, 3))}
    for name in ("airlines", "airports", "planes"):
        content = (data_folder() / f"{name}.csv").read_bytes()
        wanted[f"landing/reference/{name}/2013-01-01T00.csv"] = content
    assert files == wanted
    events = [name for name in files if name.startswith("landing/flight_events/")]
    lines = sum(len(files[name].splitlines()) for name in events)
    assert (played.since, played.until, played.files) == (START, datetime(2013, 1, 3), len(files))
    assert played.events == lines
    assert not played.finished


@pytest.mark.parametrize("hours", [pytest.param(1, marks=pytest.mark.long), 7, 48])
def test_in_steps_or_at_once_the_same_lands(home: Path, hours: int) -> None:
    at_once, in_steps = MemoryStore(), MemoryStore()
    play(at_once, home, until=datetime(2013, 1, 3))
    end = datetime(2013, 1, 3)
    while play(in_steps, home, until=end, hours=hours).until < end:
        pass
    assert landed(in_steps) == landed(at_once)


def test_a_file_that_is_there_already_is_left_as_it_is(home: Path) -> None:
    store = MemoryStore()
    store.put("landing/weather/2013-01-01T06-EWR.json", b"mine")
    all_files = play(MemoryStore(), home, hours=24).files
    assert play(store, home, hours=24).files == all_files - 1
    assert store.read("landing/weather/2013-01-01T06-EWR.json") == b"mine"


def test_the_year_ends_with_its_last_delivery(home: Path, world: PreparedYear) -> None:
    store, start = MemoryStore(), datetime(2013, 12, 31)
    begin_at(store, start)
    played = play(store, home, until=datetime(2014, 2, 1))
    assert (played.until, played.finished, played.share) == (world.end, True, 1)
    again = play(store, home, hours=12)
    assert (again.files, again.events, again.finished) == (0, 0, True)
    assert again.sentence == "landed nothing: the year is over"


ODD = [b"", b"[]", b"{}", b'{"next": 3}', b'{"next": "x"}']


@pytest.mark.parametrize("text", ODD)
def test_a_state_that_says_nothing_is_told_from_none(home: Path, text: bytes) -> None:
    store = MemoryStore()
    store.put(STATE, text)
    with pytest.raises(Broken, match=STATE):
        play(store, home, hours=1)
    assert landed(store) == {}


def test_one_lake_has_one_replay_at_a_time(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()

    def second(*_: object) -> None:
        with pytest.raises(Transient, match="another replay"):
            play(store, home, hours=1)

    monkeypatch.setattr(store, "put", second)
    assert play(store, home, hours=1).until == START + HOUR


def test_a_replay_on_disk_leaves_landed_files_and_state_alone(home: Path, tmp_path: Path) -> None:
    store = DiskStore(tmp_path / "lake")
    played = play(store, home, hours=12)
    there = sorted(
        path.relative_to(store.root).as_posix() for path in store.root.rglob("*") if path.is_file()
    )
    assert len(there) == played.files + 1 and there[0] == STATE
