"""What the plan of a vacuum takes in memory, by what lies in the table's folder; each figure in a fresh process.

`python -m benchmarks.vacuum_memory [objects …]`. Files that no log has are listed, and beyond the bound of one vacuum (`MOST_FILES`) they
are counted and left to the next: three times as many must take no more. Files of the log, live or removed, are held as long as the log is.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.big_log import KEY, build
from lakehouse import Append, Landing, Table
from lakehouse.core.inventory import StoredObject
from lakehouse.core.settings import parse_settings
from lakehouse.engine.clock import now_ms
from lakehouse.engine.lake import Lake
from lakehouse.engine.store import DiskStore
from lakehouse.engine.vacuum import LakeFacts, plan, table_facts

ORPHANS, IN_LOG = (1_000_000, 3_000_000), 250_000
MOST_BYTES, MOST_GROWTH = 700_000_000, 1.15
BIG = Table(key=KEY, source=Landing(prefix="landing/big/", format="json", schema="id BIGINT, day DATE"), write=Append())
_OLD_MS = 1_600_000_000_000


class Listed(DiskStore):
    """A store whose listing tells of files that are on no disk: those of the log, and `orphans` more."""

    orphans = 0

    def walk(self, prefix: str) -> Iterator[StoredObject]:
        """See `Store.walk`."""
        yield from super().walk(prefix)
        for name in chain(self._of_log(), self._of_nobody()):
            yield StoredObject(bucket="local", key=f"{KEY}/{name}", size_bytes=1_000_000, modified_ms=_OLD_MS)

    def _of_log(self) -> Iterator[str]:
        with pq.ParquetFile(self.root / KEY / "_delta_log" / f"{1:020}.checkpoint.parquet") as file:
            for batch in file.iter_batches(columns=["add.path", "remove.path"]):
                for kind in ("add", "remove"):
                    yield from (path for path in batch.column(kind).field("path").to_pylist() if path)

    def _of_nobody(self) -> Iterator[str]:
        for number in range(self.orphans):
            yield f"day={number % 1_000:04}/part-{number % 100_000:05}-0b4e1d6c-4d0c-4a3f-9a58-{number:012x}.c000.snappy.parquet"


def main(*orphans: int) -> int:
    """Prints the figures; 1 if more files take more memory than the bound of one vacuum, or a plan takes more than its goal."""
    peaks = [_measured(orphans=count, files=10, tombstones=0) for count in orphans or ORPHANS]
    _measured(orphans=0, files=IN_LOG, tombstones=0)
    _measured(orphans=0, files=10, tombstones=IN_LOG)
    kept = max(peaks) <= MOST_BYTES and peaks[-1] <= peaks[0] * MOST_GROWTH
    print(f"goals: at most {MOST_BYTES / 1e6:.0f} MB, and {MOST_GROWTH} times that of the first for the last: {'' if kept else 'not '}kept")
    return 0 if kept else 1


def measure(root: Path, orphans: int) -> None:
    """Prints what the plan of a FULL vacuum of the table below `root` took, as JSON."""
    lake_settings = parse_settings({"LAKEHOUSE_ROOT": str(root), "LAKEHOUSE_REPLAY": "off"}, base=root)
    store = Listed(root)
    store.orphans = orphans
    table_facts.SETTLED_MS = now_ms()  # the log's deletion vectors are listed nowhere
    lake, before, began = Lake(settings=lake_settings, store=store), _bytes("VmHWM"), time.perf_counter()
    found = plan(LakeFacts(lake, [BIG]), BIG, mode="FULL")
    assert found is not None
    document = {"planned": found.file_count, "left": found.left_count, "seconds": time.perf_counter() - began}
    print(json.dumps({**document, "before_bytes": before, "peak_bytes": _bytes("VmHWM")}))


def _measured(*, orphans: int, files: int, tombstones: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder), files=files, tombstones=tombstones, commits=0)
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.vacuum_memory", "--measure", folder, str(orphans)],
            capture_output=True,
            text=True,
            check=True,
        )
    found = json.loads(done.stdout)
    grown = found["peak_bytes"] - found["before_bytes"]
    print(
        f"{orphans:9,} orphans, {files:7,} live, {tombstones:7,} removed: {found['planned']:9,} planned, {found['left']:9,} left, "
        f"{found['seconds']:5.1f} s, {grown / 1e6:4.0f} MB, {grown / (orphans + files + tombstones):5.0f} bytes each",
        flush=True,
    )
    return grown


def _bytes(field: str) -> int:
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{field}:")]
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        sys.exit(measure(Path(sys.argv[2]), int(sys.argv[3])))
    sys.exit(main(*map(int, sys.argv[1:])))
