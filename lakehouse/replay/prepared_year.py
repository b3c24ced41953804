"""The prepared year: the rows of all landing files of 2013, computed once and kept in the home.

The year is written to a folder with a temporary name and then renamed, so an incomplete year is
never read. The final name contains the release of the data and `_EDITION`, so a year that was
prepared from other data or by other rules is not read either.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from heapq import merge
from operator import attrgetter
from pathlib import Path
from typing import Any

from lakehouse.base.errors import Broken
from lakehouse.replay.files import LandingFile, data_version, event_files, weather_files

HOUR = timedelta(hours=1)
_EDITION = 1


@dataclass(frozen=True, kw_only=True)
class PreparedYear:
    """Reads the year that was prepared in `folder`, some hours at a time."""

    folder: Path

    def files(self, start: datetime, end: datetime) -> Iterator[LandingFile]:
        """The files of the hours from `start` to before `end`, sorted by hour and name."""
        flights = event_files(self._rows("events", start, end))
        weather = weather_files(self._rows("weather", start, end))
        return merge(flights, weather, key=attrgetter("hour", "name"))

    @cached_property
    def end(self) -> datetime:
        """The hour after the last file. Late events of 31 December land on 1 January 2014."""
        from pyarrow import parquet

        # Rows are sorted by `hour`, the first column, so the last row group has the last hour.
        metadata: Any = parquet.read_metadata(self.folder / "events.parquet")
        return metadata.row_group(metadata.num_row_groups - 1).column(0).statistics.max + HOUR

    def _rows(self, name: str, start: datetime, end: datetime) -> list[dict[str, Any]]:
        import pyarrow
        from pyarrow import parquet

        lower = pyarrow.scalar(start, pyarrow.timestamp("s"))
        upper = pyarrow.scalar(end, pyarrow.timestamp("s"))
        return parquet.read_table(
            self.folder / f"{name}.parquet", filters=[("hour", ">=", lower), ("hour", "<", upper)]
        ).to_pylist()


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
    """Writes the year in a separate process, so that its half gigabyte of memory is freed."""
    result = subprocess.run(
        [sys.executable, "-m", "lakehouse.replay.flight_events", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        lines = result.stderr.strip().splitlines() or [f"exit code {result.returncode}"]
        raise Broken(f"the replay's year could not be prepared in {folder.parent}: {lines[-1]}")
