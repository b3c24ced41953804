"""The prepared year: what it holds, and that it is always the same."""

import hashlib
import json
from datetime import datetime, timedelta
from pathlib import Path

import pandas
import pytest
from pyarrow import parquet

from lakehouse.base.errors import Broken
from lakehouse.replay import play as play_module
from lakehouse.replay.flight_events import observations
from lakehouse.replay.play import LandingFile, PreparedYear, prepare

HOUR = timedelta(hours=1)


def day(world: PreparedYear, at: datetime) -> list[LandingFile]:
    return list(world.files(at, at + 24 * HOUR))


@pytest.mark.long
def test_the_year_holds_every_delivery_and_every_observation_once(
    world: PreparedYear, deliveries: pandas.DataFrame
) -> None:
    events = parquet.read_table(
        world.folder / "events.parquet", columns=["hour", "origin", "event_id"]
    ).to_pandas()
    expected = deliveries.assign(hour=deliveries.delivered)[["hour", "event_id"]]
    for frame in (events, expected):
        frame.sort_values(["hour", "event_id"], ignore_index=True, inplace=True)
    assert (events.hour == expected.hour).all()
    assert (events.event_id.to_numpy() == expected.event_id.to_numpy()).all()
    weather = parquet.read_table(world.folder / "weather.parquet").to_pandas()
    assert (
        len(weather)
        == len(weather[["hour", "origin"]].drop_duplicates())
        == len(observations())
        == 26_115
    )


def test_an_event_tells_what_was_known_when_it_happened_and_no_more(world: PreparedYear) -> None:
    known = {"scheduled": set(), "cancelled": set(), "departed": {"departed_at", "dep_delay"}}
    seen = set()
    for file in day(world, datetime(2013, 2, 8)):
        for line in file.content.splitlines() if file.event_count else ():
            event = json.loads(line)
            seen.add(event["event_type"])
            told = {
                name
                for name in ("departed_at", "dep_delay", "arrived_at", "arr_delay", "air_time")
                if event[name] is not None
            }
            assert event["event_type"] == "arrived" or told == known[event["event_type"]]
            assert event["cancelled"] is (event["event_type"] == "cancelled")
    assert seen == {"scheduled", "cancelled", "departed", "arrived"}


def test_the_bytes_of_a_start_and_seed_stay_what_they_are(world: PreparedYear) -> None:
    contents = b"".join(
        file.content for file in world.files(datetime(2013, 3, 1), datetime(2013, 3, 4))
    )
    assert (
        hashlib.sha256(contents).hexdigest()
        == "8fd9c057cf66580190db4a3a16d83c210d59e9401dd2ed958782efce03a5ab07"
    )


def test_a_preparation_that_was_killed_is_done_again(prepared_home: Path) -> None:
    """It left a half of the year where the fixture prepared the whole."""
    assert prepare(prepared_home).end == datetime(2014, 1, 1, 12)
    assert [path.name for path in (prepared_home / "replay").iterdir()] == [
        f"{play_module.data_version()}-2"
    ]


def test_a_preparation_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(Broken, match=r"could not be prepared in .*: .*missing"):
        play_module._write_year(tmp_path / "missing")
