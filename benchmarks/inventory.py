"""Measures upkeep of a whole fleet: health, inventory, its reconciliation, and plans of vacuums.

`python -m benchmarks.inventory [FILES] [TABLES …]`; the largest fleet tried has 1,000 tables of
10,000 files. The logs are generated, and storage is a list of the files that they name. Each step
runs in a new process.
"""

import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.figures import Figure, alone, growth, timed
from benchmarks.fresh import fresh, peak_bytes
from benchmarks.generated_logs import KEY, NOW_MS, build, copies
from benchmarks.own_lake import landed_table
from lakehouse import Table
from lakehouse.base.clock import now_ms
from lakehouse.base.settings import parse_settings
from lakehouse.base.stored_objects import Part, StoredObject
from lakehouse.compact.assess import health_of
from lakehouse.lake.lake import Lake, PathResolver, for_each_table
from lakehouse.store import LOCAL, DiskStore
from lakehouse.vacuum.facts import LakeFacts, plan
from lakehouse.vacuum.inventory.plan import fold_table_files
from lakehouse.vacuum.inventory.run import (
    newest_inventory,
    reconcile_inventory,
    scan,
)

COUNTS = (3, 10, 30)


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
    """Seconds and memory of each step by the number of objects."""
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
    files = fold_table_files(facts, resolve=PathResolver(lake), now_ms=now_ms())
    sizes = {name: each.size_bytes or 0 for name, each in files.live.items()}
    sizes |= dict.fromkeys(files.removed, 1)
    store = GeneratedStore(Path(lake.settings.root), [each.key for each in tables], sizes)
    return scan(replace(lake, store=store), tables, now_ms=now_ms()).newly_loaded


def _reconcile(lake: Lake, tables: Sequence[Table]) -> int:
    inventory = newest_inventory(lake)
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


if __name__ == "__main__":
    sys.exit(alone(main))
