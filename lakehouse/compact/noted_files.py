"""Plans compactions with the lake's notes, which no table's log has.

- `_lakehouse/cold_files/<layer>/<name>.json`: files in a storage class that is slow or paid to
  read. For a lake on S3, each loaded inventory replaces these notes. Such files are not compacted.
- `_lakehouse/unreadable/<layer>/<name>.json`: files that deltalake cannot rewrite as Spark reads
  them, for example with a string that is not UTF-8. The schema does not show this, so a compaction
  fails and makes the note. While the file is live, Spark compacts the table.
- `_lakehouse/speed/<engine>.json`: how long the lake's newest ten compactions took, as factors of
  the default rates. They price the first compaction of a table (`compact.plan.estimate`).

A note that is missing, damaged or cannot be read counts as empty.
"""

import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from lakehouse.base.errors import LakehouseError, Refused
from lakehouse.compact.plan.compaction import CompactionPlan
from lakehouse.compact.plan.estimate import RUNS_COUNTED
from lakehouse.delta.snapshot import Snapshot, TableFacts, file_paths
from lakehouse.lake.journal import encoded
from lakehouse.lake.lake import Lake

if TYPE_CHECKING:
    from lakehouse.vacuum.inventory.plan.reconcile import Reconciliation

_COLD = "_lakehouse/cold_files"
_UNREADABLE = "_lakehouse/unreadable"
_SPEED = "_lakehouse/speed"


class UnreadableFileError(Refused):
    """deltalake cannot rewrite a planned file. `path` is its path in the log, `why` a clause."""

    def __init__(self, table: str, path: str, why: str) -> None:
        super().__init__(f'compaction of {table}: {why}. Use engine="spark"')
        self.path = path
        self.why = why


def plan_with_notes(
    lake: Lake, facts: TableFacts, plan: Callable[[Snapshot, float | None], CompactionPlan]
) -> CompactionPlan:
    """The compaction plan for a snapshot with the notes about its files and the lake's speed.

    Notes are read only if they can matter: if there is something to merge, cold files on S3,
    unreadable ones if deltalake would merge, and the speed if the table has no compaction.
    """
    planned = plan(facts.snapshot, None)
    if not planned.bins:
        return planned
    snapshot = facts.snapshot
    if planned.engine.engine == "deltalake":
        snapshot = with_unreadable_files(lake, snapshot)
    if lake.on_s3(planned.table):
        cold = frozenset(_noted(lake, f"{_COLD}/{planned.table}.json"))
        snapshot = replace(snapshot, cold_files=cold)
    if snapshot.unreadable_files or snapshot.cold_files:
        planned = plan(snapshot, None)
    if not planned.bins or planned.estimate.source != "defaults":
        return planned
    factor = _lake_factor(lake, planned.engine.engine)
    return planned if factor is None else plan(snapshot, factor)


def with_unreadable_files(lake: Lake, snapshot: Snapshot) -> Snapshot:
    """The snapshot with those noted unreadable files that are live."""
    noted = _noted(lake, f"{_UNREADABLE}/{snapshot.table}.json")
    if not noted:
        return snapshot
    live = {path: noted[path] for path in file_paths(snapshot.files) if path in noted}
    return replace(snapshot, unreadable_files=live)


def note_unreadable_file(lake: Lake, snapshot: Snapshot, error: UnreadableFileError) -> None:
    """Adds a file to the table's note, and drops files that are no longer live."""
    files = {**with_unreadable_files(lake, snapshot).unreadable_files, error.path: error.why}
    lake.store.put(f"{_UNREADABLE}/{snapshot.table}.json", encoded(files))


def unreadable_column(actions: list[dict[str, Any]], folder: Path) -> str | None:
    """The first column that deltalake cannot read from the files of a log; `None` if it reads all.

    `actions` become the only commit of the table in `folder`, a workshop of `deltalake_run`.
    """
    from deltalake import DeltaTable, QueryBuilder

    log = folder / "_delta_log"
    for commit in log.iterdir():
        commit.unlink()
    (log / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))
    table = DeltaTable(folder.absolute().as_uri())
    query = QueryBuilder().register("files", table)
    for column in [field.name for field in table.schema().fields]:
        quoted = column.replace('"', '""')
        try:
            for _ in query.execute(f'SELECT "{quoted}" FROM files'):  # noqa: S608
                pass
        except Exception:
            return column
    return None


def note_cold_files(lake: Lake, reconciliation: "Reconciliation") -> None:
    """Replaces the notes of all tables inside the lake with the cold files in an inventory.

    The inventory does not cover tables outside the lake, so their notes stay.
    """
    kept_names = {f"{_COLD}/{table}.json" for table in lake.elsewhere}
    for table in reconciliation.tables:
        if table.cold_files:
            name = f"{_COLD}/{table.table}.json"
            lake.store.put(name, encoded(table.cold_files))
            kept_names.add(name)
    names = [file.name for file in lake.store.list(_COLD)]
    lake.store.delete([name for name in names if name not in kept_names])


def note_speed(lake: Lake, engine: str, factor: float) -> None:
    """Notes the speed of a compaction. A storage error is ignored: the compaction has succeeded."""
    with contextlib.suppress(LakehouseError):
        factors = [*_noted_factors(lake, engine), round(factor, 4)][-RUNS_COUNTED:]
        lake.store.put(f"{_SPEED}/{engine}.json", encoded({"factors": factors}))


def _lake_factor(lake: Lake, engine: str) -> float | None:
    factors = _noted_factors(lake, engine)
    return median(factors) if factors else None


def _noted_factors(lake: Lake, engine: str) -> list[float]:
    errors = (FileNotFoundError, LakehouseError, ValueError, TypeError, KeyError)
    with contextlib.suppress(*errors):
        return [*map(float, json.loads(lake.store.read(f"{_SPEED}/{engine}.json"))["factors"])]
    return []


def _noted(lake: Lake, name: str) -> dict[str, str]:
    with contextlib.suppress(FileNotFoundError, LakehouseError, ValueError, AttributeError):
        noted = json.loads(lake.store.read(name))
        return {str(file): str(note) for file, note in noted.items()}
    return {}
