"""What the plan of a vacuum takes in memory, by what lies in the table's folder; each figure in a fresh process.

`python -m benchmarks.vacuum_memory [objects …]`. Files that no log has are listed, and beyond the bound of one vacuum (`MOST_FILES`) they
are counted and left to the next: three times as many must take no more. Files of the log, live or removed, are held as long as the log is.
"""

import sys
import tempfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from unittest.mock import patch

import pyarrow.parquet as pq

from benchmarks.big_log import KEY, build
from benchmarks.figures import Figure, alone, timed
from benchmarks.fresh import fresh, peak_bytes
from lakehouse import Append, Landing, Table
from lakehouse.core.inventory.objects import StoredObject
from lakehouse.core.settings import parse_settings
from lakehouse.engine.clock import now_ms
from lakehouse.engine.lake import Lake
from lakehouse.engine.store import DiskStore
from lakehouse.engine.vacuum import table_facts
from lakehouse.engine.vacuum.lake_facts import LakeFacts
from lakehouse.engine.vacuum.table_facts import plan

ORPHANS, IN_LOG = (1_000_000, 3_000_000), 250_000
MOST_BYTES, MOST_GROWTH = 700_000_000, 1.15
BIG = Table(
    key=KEY,
    source=Landing(prefix="landing/big/", format="json", schema="id BIGINT, day DATE"),
    write=Append(),
)
_OLD_MS = 1_600_000_000_000


class Listed(DiskStore):
    """A store whose listing tells of files that are on no disk: those of the log, and `orphans` more."""

    orphans = 0

    def walk(self, prefix: str) -> Iterator[StoredObject]:
        """See `Store.walk`."""
        yield from super().walk(prefix)
        for name in chain(self._of_log(), self._of_nobody()):
            yield StoredObject(
                bucket="local", key=f"{KEY}/{name}", size_bytes=1_000_000, modified_ms=_OLD_MS
            )

    def _of_log(self) -> Iterator[str]:
        with pq.ParquetFile(self.root / KEY / "_delta_log" / f"{1:020}.checkpoint.parquet") as file:
            for batch in file.iter_batches(columns=["add.path", "remove.path"]):
                for kind in ("add", "remove"):
                    yield from (
                        path for path in batch.column(kind).field("path").to_pylist() if path
                    )

    def _of_nobody(self) -> Iterator[str]:
        for number in range(self.orphans):
            yield f"day={number % 1_000:04}/part-{number % 100_000:05}-0b4e1d6c-4d0c-4a3f-9a58-{number:012x}.c000.snappy.parquet"


def main(*orphans: int) -> list[Figure]:
    """The memory of a plan, by what lies in the folder; files of the log are fewer by as much as a smoke run's orphans are."""
    counts = orphans or ORPHANS
    in_log = min(IN_LOG, counts[-1])
    peaks = [_measured(orphans=count, files=10, tombstones=0) for count in counts]
    live, removed = (
        _measured(orphans=0, files=in_log, tombstones=0),
        _measured(orphans=0, files=10, tombstones=in_log),
    )
    largest, grown = (
        f"a plan beside {counts[-1]:,} files in no log",
        f"the same over {counts[0]:,} such files",
    )
    return [
        Figure(name=largest, value=peaks[-1] / 1e6, unit="MB", at_most=MOST_BYTES / 1e6),
        Figure(name=grown, value=peaks[-1] / (peaks[0] or 1), unit="times", at_most=MOST_GROWTH),
        Figure(name=f"a plan of {in_log:,} live files", value=live / 1e6, unit="MB"),
        Figure(name=f"a plan of {in_log:,} removed files", value=removed / 1e6, unit="MB"),
    ]


def measure(root: str, orphans: int) -> dict[str, float]:
    """What the plan of a FULL vacuum of the table below `root` takes."""
    lake_settings = parse_settings(
        {"LAKEHOUSE_ROOT": root, "LAKEHOUSE_REPLAY": "off"}, base=Path(root)
    )
    store = Listed(Path(root))
    store.orphans = orphans
    lake, before = Lake(settings=lake_settings, store=store), peak_bytes()
    with patch.object(
        table_facts, "SETTLED_MS", now_ms()
    ):  # the log's deletion vectors are listed nowhere
        seconds, found = timed(lambda: plan(LakeFacts(lake, [BIG]), BIG, mode="FULL"))
    return {
        "planned": found.file_count,
        "left": found.left_count,
        "seconds": seconds,
        "grown": peak_bytes() - before,
    }


def _measured(*, orphans: int, files: int, tombstones: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        build(folder, files=files, tombstones=tombstones, commits=0)
        found = fresh(measure, folder, orphans)
    print(
        f"{orphans:9,} orphans, {files:7,} live, {tombstones:7,} removed: {found['planned']:9,} planned, {found['left']:9,} left, "
        f"{found['seconds']:5.1f} s, {found['grown'] / 1e6:4.0f} MB, {found['grown'] / (orphans + files + tombstones):5.0f} bytes each",
        flush=True,
    )
    return found["grown"]


if __name__ == "__main__":
    sys.exit(alone(main))
