"""The year made ready for landing: prepared once, kept in the state folder, read by the hour.

It is written under a private name and renamed, so that it is there whole or not at all; its name holds the release of the data and
`_EDITION`, so that one prepared by other rules is never read.
"""

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from heapq import merge
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from lakehouse.replay.files import LandingFile, event_files, weather_files
from lakehouse.replay.package import data_version

if TYPE_CHECKING:
    import pandas

HOUR = timedelta(hours=1)
_EDITION = 1
# About two days of events: few enough that an hour is read in milliseconds.
_ROW_GROUP_ROWS = 1 << 12


@dataclass(frozen=True, kw_only=True)
class World:
    """The prepared year, in `folder`."""

    folder: Path

    def files(self, start: datetime, end: datetime) -> Iterator[LandingFile]:
        """The files of the hours from `start` to before `end`, by hour and name."""
        events, weather = (self._rows(name, start, end) for name in ("events", "weather"))
        return merge(event_files(events), weather_files(weather), key=attrgetter("hour", "name"))

    @cached_property
    def end(self) -> datetime:
        """The hour after the last that has a file: what late events there are of 31 December is delivered on 1 January 2014."""
        from pyarrow import parquet

        metadata: Any = parquet.read_metadata(self.folder / "events.parquet")
        return metadata.row_group(metadata.num_row_groups - 1).column(0).statistics.max + HOUR

    def _rows(self, name: str, start: datetime, end: datetime) -> list[dict[str, Any]]:
        import pyarrow
        from pyarrow import parquet

        first, last = (pyarrow.scalar(bound, pyarrow.timestamp("s")) for bound in (start, end))
        return parquet.read_table(self.folder / f"{name}.parquet", filters=[("hour", ">=", first), ("hour", "<", last)]).to_pylist()


def prepare(home: Path) -> World:
    """The year, made ready below `home` if it is not there yet: seconds the first time, nothing after that."""
    folder = home / "replay" / f"{data_version()}-{_EDITION}"
    if not folder.exists():
        unfinished = folder.with_name(f".{folder.name}.{uuid4().hex}")
        unfinished.mkdir(parents=True)
        try:
            _write_year(unfinished)
            _rename(unfinished, folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return World(folder=folder)


def _rename(unfinished: Path, folder: Path) -> None:
    try:
        unfinished.rename(folder)
    except OSError:
        if not folder.exists():  # else another process was as quick, and its year is the same
            raise


def _write_year(folder: Path) -> None:
    from lakehouse.replay.year import delivered_events, observations

    _write(folder / "events.parquet", delivered_events())
    _write(folder / "weather.parquet", [observations()])


def _write(path: Path, slices: "Iterable[pandas.DataFrame]") -> None:
    import pyarrow
    from pyarrow import parquet

    tables = (pyarrow.Table.from_pandas(part, preserve_index=False) for part in slices)
    first = next(tables)
    with parquet.ParquetWriter(path, first.schema, compression="zstd") as writer:
        writer.write_table(first, row_group_size=_ROW_GROUP_ROWS)
        for table in tables:
            writer.write_table(table, row_group_size=_ROW_GROUP_ROWS)
