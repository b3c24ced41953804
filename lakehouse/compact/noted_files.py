"""Plans compactions with the lake's notes, which no table's log has.

- `cold_files`: files in a storage class that is slow or paid to read, of each table. For a lake on
  S3, each loaded inventory replaces these notes. Such files are not compacted.
- `unreadable_files`: files that deltalake cannot rewrite as Spark reads them, for example with a
  string that is not UTF-8. The schema does not show this, so a compaction fails and makes the note.
  While the file is live, Spark compacts the table.
- How long the lake's newest ten compactions took, as factors of the default rates, is in its
  operations. It prices the first compaction of a table (`compact.plan.estimate`).

Notes that cannot be read count as empty.
"""

import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import LakehouseError, Refused
from lakehouse.base.text import DAY_MS
from lakehouse.compact.plan.compaction import CompactionPlan
from lakehouse.compact.plan.estimate import RUNS_COUNTED
from lakehouse.delta.snapshot import Snapshot, TableFacts, file_paths
from lakehouse.lake.lake import Lake
from lakehouse.lake.operations import read_operations
from lakehouse.lake.records import put_records, read_records

if TYPE_CHECKING:
    from lakehouse.vacuum.inventory.plan.reconcile import Reconciliation

_COLD = "cold_files"
_UNREADABLE = "unreadable_files"
_SPEED_MS = 30 * DAY_MS


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
        cold = frozenset(_noted(lake, _COLD, planned.table).get(planned.table, ()))
        snapshot = replace(snapshot, cold_files=cold)
    if snapshot.unreadable_files or snapshot.cold_files:
        planned = plan(snapshot, None)
    if not planned.bins or planned.estimate.source != "defaults":
        return planned
    factor = _lake_factor(lake, planned.engine.engine)
    return planned if factor is None else plan(snapshot, factor)


def with_unreadable_files(lake: Lake, snapshot: Snapshot) -> Snapshot:
    """The snapshot with those noted unreadable files that are live."""
    noted = _noted(lake, _UNREADABLE, snapshot.table).get(snapshot.table, {})
    if not noted:
        return snapshot
    live = {path: noted[path] for path in file_paths(snapshot.files) if path in noted}
    return replace(snapshot, unreadable_files=live)


def note_unreadable_file(lake: Lake, snapshot: Snapshot, error: UnreadableFileError) -> None:
    """Adds a file to the table's note, and drops files that are no longer live."""
    files = {**with_unreadable_files(lake, snapshot).unreadable_files, error.path: error.why}
    put_records(lake, _UNREADABLE, {(snapshot.table, ""): files})


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
    noted = _noted(lake, _COLD)
    found = {table.table: dict(table.cold_files) for table in reconciliation.tables}
    changed = dict[tuple[str, str], Any]()
    for table in noted.keys() | found.keys():
        files = found.get(table) or None
        if table not in lake.elsewhere and files != noted.get(table):
            changed[table, ""] = files
    put_records(lake, _COLD, changed)


def _lake_factor(lake: Lake, engine: str) -> float | None:
    """The median speed of the lake's newest compactions by this engine."""
    factors = list[float]()
    with contextlib.suppress(LakehouseError):
        for operation in read_operations(lake, kind="compaction", since_ms=now_ms() - _SPEED_MS):
            factor = operation.detail.get("speed_factors", {}).get(engine)
            if factor is not None:
                factors.append(factor)
    return median(factors[-RUNS_COUNTED:]) if factors else None


def _noted(lake: Lake, kind: str, table_key: str | None = None) -> dict[str, dict[str, str]]:
    """The noted files of each table, or of one, and a text about each file."""
    with contextlib.suppress(LakehouseError):
        return {each.table: each.value for each in read_records(lake, kind, table_key)}
    return {}
