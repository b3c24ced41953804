"""Measures upkeep of a whole fleet: health, inventory, its reconciliation, and plans of vacuums.

`python -m benchmarks.inventory [FILES] [TABLES …]`; the largest fleet tried has 1,000 tables of
10,000 files. The logs are generated, and storage is a list of the files that they name. Each step
runs in a new process. It also lists a bucket with one thread and with many. The answers come from a
list, each as late as one of S3, since test servers handle one request at a time.
"""

import sys
import tempfile
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, alone, growth, timed
from benchmarks.fresh import fresh, peak_bytes
from benchmarks.generated_logs import KEY, NOW_MS, build, copies
from benchmarks.own_lake import landed_table
from lakehouse import Table
from lakehouse.core.inventory.objects import Part, StoredObject
from lakehouse.core.settings import parse_settings
from lakehouse.engine.clock import now_ms
from lakehouse.engine.inventory.load import scan
from lakehouse.engine.inventory.reconcile_lake import covered_files, reconcile_inventory
from lakehouse.engine.inventory.table import newest_inventory
from lakehouse.engine.lake import Lake
from lakehouse.engine.read_each_table import for_each_table
from lakehouse.engine.store import LOCAL, DiskStore
from lakehouse.engine.store.s3 import THREADS, walk_keys
from lakehouse.engine.table_health import health_of
from lakehouse.engine.vacuum.lake_facts import LakeFacts
from lakehouse.engine.vacuum.plan import plan

ANSWER_SECONDS = 0.08
COUNTS = (3, 10, 30)
LISTED_KEYS, LISTED_FOLDERS = 100_000, 1_000


class GeneratedStore(DiskStore):
    """A store whose tables seem to have all files that the log of `KEY` names."""

    def __init__(self, root: Path, keys: Sequence[str], sizes: Mapping[str, int]) -> None:
        super().__init__(root)
        self._keys = keys
        self._sizes = sizes

    def walk(self, prefix: str) -> Iterator[StoredObject]:
        """Generated files and real ones; below a prefix, only real ones."""
        yield from super().walk(prefix)
        for key in self._keys if not prefix else ():
            for name, size_bytes in self._sizes.items():
                yield StoredObject(
                    bucket=LOCAL,
                    key=f"{key}/{name}",
                    size_bytes=size_bytes,
                    modified_ms=NOW_MS,
                    storage_class="STANDARD",
                )


def main(files: int = 10_000, *counts: int) -> list[Figure]:
    """Seconds and memory of each step by the number of objects, and of a listing."""
    points = {step: list[tuple[float, float]]() for step in STEPS}
    figures = list[Figure]()
    for count in counts or COUNTS:
        with tempfile.TemporaryDirectory() as home:
            fresh(build_fleet, home, files, count)
            for step, row in STEPS.items():
                seconds, peak_mb, objects = fresh(measure, step, home)
                points[step].append((count * files, seconds))
                name = f"{step}, {count:,} tables of {files:,} files"
                figures += [
                    Figure(name=name, value=seconds, unit="s", row=row),
                    Figure(name=f"memory of {name}", value=peak_mb, unit="MB", row=row),
                ]
                print(
                    f"  {name}: {seconds:.1f} s, {peak_mb:.0f} MB; {objects:,} objects", flush=True
                )
    return [
        *figures,
        *(growth(f"{step}, by files", points[step], size_of="files") for step in STEPS),
        _listing(files),
    ]


def build_fleet(home: str, files: int, count: int) -> None:
    """Writes the logs of `count` tables; of eleven files, one was removed long ago."""
    root = Path(home, "lake")
    build(root, files, partitions=100, tombstones=files // 10)
    copies(root, count - 1)


def measure(step: str, home: str) -> tuple[float, float, int]:
    """Seconds and peak MB of a step over the whole fleet, and the number of its objects."""
    root = Path(home, "lake")
    settings = {"LAKEHOUSE_ROOT": str(root), "LAKEHOUSE_REPLAY": "off"}
    lake = Lake(settings=parse_settings(settings, base=Path(home)), store=DiskStore(root))
    keys = sorted(f"bronze/{folder.name}" for folder in (root / "bronze").iterdir())
    tables = [landed_table(key, "id BIGINT, day DATE") for key in keys]
    seconds, objects = timed(partial(_RUN[step], lake, tables))
    return seconds, peak_bytes() / 1e6, objects


def _health(lake: Lake, tables: Sequence[Table]) -> int:
    def read(table: Table) -> int | None:
        facts = lake.facts(table.key)
        return health_of(lake, table, facts).file_count if facts else None

    return sum(each.value or 0 for each in for_each_table(tables, read))


def _scan(lake: Lake, tables: Sequence[Table]) -> int:
    facts = lake.facts(KEY)
    assert facts is not None
    files = covered_files(lake, facts, now_ms=now_ms())
    sizes = {name: each.size_bytes or 0 for name, each in files.live.items()}
    sizes |= dict.fromkeys((*files.vectors, *files.tombstones), 1)
    store = GeneratedStore(Path(lake.settings.root), [each.key for each in tables], sizes)
    return scan(replace(lake, store=store), tables, now_ms=now_ms()).newly_loaded


def _reconcile(lake: Lake, tables: Sequence[Table]) -> int:
    inventory = newest_inventory(lake, now_ms=now_ms())
    found = reconcile_inventory(lake, tables, inventory, now_ms=now_ms())
    kinds = {share.part for table in found.tables for share in table.shares}
    assert Part.LIVE in kinds and Part.ORPHANED_OLD not in kinds
    assert not any(table.missing or table.problem for table in found.tables)
    return found.file_count


def _plan_vacuums(lake: Lake, tables: Sequence[Table]) -> int:
    run = LakeFacts(lake, tables)
    plans = (plan(run, table, mode="INVENTORY") for table in tables)
    return sum(len(each.candidates) for each in plans if each)


_RUN = {
    "health": _health,
    "inventory scan": _scan,
    "reconciliation": _reconcile,
    "plans of vacuums": _plan_vacuums,
}
# The step, and the promise that it belongs to.
STEPS = {"health": "P3", "inventory scan": "P13", "reconciliation": "P13", "plans of vacuums": "P2"}


def _listing(files: int) -> Figure:
    """Seconds to list a bucket with one thread, and with as many as a scan uses."""
    count = min(LISTED_KEYS, files * 10)
    keys = sorted(
        f"{KEY}/day={number % LISTED_FOLDERS:04}/part-{number:06}.parquet"
        for number in range(count)
    )
    seconds: dict[int, float] = {}
    for threads in (1, THREADS):
        server, began = Answers(keys), time.perf_counter()
        listed = sum(1 for _ in walk_keys(server, "bucket", "", threads=threads))
        seconds[threads] = time.perf_counter() - began
        assert listed == count
    answer = f"each answer after {ANSWER_SECONDS * 1_000:.0f} ms"
    name = f"a bucket of {count:,} keys listed by {THREADS} threads, {answer}"
    return Figure(name=name, value=seconds[THREADS], unit="s", peers={"by one thread": seconds[1]})


class Answers:
    """ListObjectsV2 over a sorted list of keys, each answer after `ANSWER_SECONDS`."""

    def __init__(self, keys: list[str]) -> None:
        self.keys, self.requests = keys, 0

    def list_objects_v2(self, **asked: Any) -> dict[str, Any]:
        """One page: of keys, or of the folders below a prefix."""
        self.requests += 1
        time.sleep(ANSWER_SECONDS)  # the answer of a far server is what is measured
        prefix, most = asked["Prefix"], asked["MaxKeys"]
        place = max(
            bisect_right(self.keys, asked.get("StartAfter", "")), bisect_left(self.keys, prefix)
        )
        if "Delimiter" not in asked:
            page = [key for key in self.keys[place : place + most + 1] if key.startswith(prefix)]
            return {
                "Contents": [{"Key": key} for key in page[:most]],
                "IsTruncated": len(page) > most,
            }
        folders: list[str] = []
        while (
            place < len(self.keys) and self.keys[place].startswith(prefix) and len(folders) < most
        ):
            folders.append(f"{prefix}{self.keys[place].removeprefix(prefix).partition('/')[0]}/")
            place = bisect_right(self.keys, f"{folders[-1]}\U0010ffff")
        return {
            "CommonPrefixes": [{"Prefix": folder} for folder in folders],
            "IsTruncated": place < len(self.keys),
        }


if __name__ == "__main__":
    sys.exit(alone(main))
