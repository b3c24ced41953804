"""The year, as the tests of the replay read it."""

from pathlib import Path

import pandas
import pytest

from lakehouse.replay.flight_events import deliver, events_of, flights_of_the_year
from lakehouse.replay.play import PreparedYear, prepare
from lakehouse_tests.conftest import link_year


@pytest.fixture
def home(prepared_home: Path, tmp_path: Path) -> Path:
    """A state folder of its own that holds the prepared year already."""
    return link_year(prepared_home, tmp_path / "home")


@pytest.fixture(scope="session")
def world(prepared_home: Path) -> PreparedYear:
    return prepare(prepared_home)


@pytest.fixture(scope="session")
def deliveries() -> pandas.DataFrame:
    return deliver(events_of(flights_of_the_year()))
