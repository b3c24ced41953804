"""A replay that is killed continues where it stopped."""

from datetime import datetime
from pathlib import Path

import pytest

from lakehouse.replay.play import play
from lakehouse_tests.memory_store import MemoryStore
from lakehouse_tests.replay.conftest import home
from lakehouse_tests.replay.test_play import START, Dying, landed

__all__ = ["home"]  # fixtures


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    "at",
    [
        "weather/2013-01-02T12-JFK",
        "flight_events/2013-01-02T12-EWR",
        '"next": "2013-01-02T13"',
        "reference/planes",
    ],
)
def test_a_killed_replay_goes_on_where_it_stopped(home: Path, at: str, after: bool) -> None:
    whole, killed = MemoryStore(), Dying(at, after=after)
    play(whole, home, until=datetime(2013, 1, 3))
    with pytest.raises(KeyboardInterrupt):
        play(killed, home, until=datetime(2013, 1, 3))
    played = play(killed, home, until=datetime(2013, 1, 3))
    assert landed(killed) == landed(whole)
    assert played.since == (
        START if "planes" in at else datetime(2013, 1, 2, 13 if after and "next" in at else 12)
    )
