"""The replay's sensor, ticked."""

from pathlib import Path

import dagster as dg
import pytest

from lakehouse.base.settings import Settings, parse_settings
from lakehouse.replay.definitions import replay_sensor
from lakehouse.replay.play import STATE
from lakehouse.store import store_at


@pytest.fixture
def settings(home: Path) -> Settings:
    return parse_settings(
        {
            "LAKEHOUSE_HOME": str(home),
            "LAKEHOUSE_REPLAY_SECONDS": "20",
            "LAKEHOUSE_REPLAY_HOURS": "6",
        },
        base=home,
    )


def tick(settings: Settings) -> str:
    with dg.instance_for_test() as instance:
        context = dg.build_sensor_context(instance=instance)
        data = replay_sensor(settings).evaluate_tick(context)
    assert not data.run_requests
    return data.skip_message or ""


def test_it_is_on_and_each_tick_lands_the_next_hours_and_says_so(settings: Settings) -> None:
    sensor = replay_sensor(settings)
    found = (sensor.name, sensor.default_status, sensor.minimum_interval_seconds)
    assert found == ("replay_sensor", dg.DefaultSensorStatus.RUNNING, 20)
    assert tick(settings).startswith("landed 2013-01-01T00 to 2013-01-01T05: ")
    assert tick(settings).startswith("landed 2013-01-01T06 to 2013-01-01T11: ")


def test_it_stops_with_the_year(settings: Settings, home: Path) -> None:
    store_at(settings.root).put(STATE, b'{"next": "2014-01-01T12"}')
    assert tick(settings) == "landed nothing: the year is over"
    assert store_at(settings.root).list("landing") == []
