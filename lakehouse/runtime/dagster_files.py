"""Reads Dagster's own records from its SQLite files, without importing Dagster.

Source: dagster 1.13, dagster/_core/storage/runs/schema.py and event_log/schema.py.
"""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from lakehouse.core.metrics.facts import DagsterRecords

# A writer of Dagster holds its lock for milliseconds. Nothing waits for these figures.
_BUSY_SECONDS = 1
# A result that is still PLANNED says nothing.
NEWEST_CHECKS = """
    SELECT asset_key, check_name, execution_status FROM asset_check_executions WHERE id IN (
        SELECT max(id) FROM asset_check_executions
        WHERE execution_status IN ('SUCCEEDED', 'FAILED') GROUP BY asset_key, check_name)
"""
# A queued run is not open: the next daemon starts it.
_OPEN_RUNS = """
    SELECT EXISTS (SELECT 1 FROM runs
        WHERE status NOT IN ('QUEUED', 'SUCCESS', 'FAILURE', 'CANCELED'))
"""


def read_dagster_records(home: Path) -> DagsterRecords | None:
    """The records below a DAGSTER_HOME; `None` if they are not in SQLite files there.

    Raises:
        OSError, sqlite3.Error: a file cannot be read.
    """
    runs = home / "history" / "runs.db"
    index = home / "history" / "runs" / "index.db"
    if not runs.exists():
        return None
    size_bytes = folder_bytes(home)  # first, since a reader adds files of its own
    checks = dict[tuple[str, str], bool]()
    with _opened(runs) as records:
        [run_count] = records.execute("SELECT count(*) FROM runs").fetchone()
    if index.exists():
        with _opened(index) as records:
            for asset_key, check, status in records.execute(NEWEST_CHECKS):
                checks["/".join(json.loads(asset_key)), check] = status == "SUCCEEDED"
    return DagsterRecords(size_bytes=size_bytes, run_count=run_count, checks=checks)


def folder_bytes(folder: Path) -> int:
    """The bytes of all files in a folder."""
    return sum(_size(file) for file in folder.rglob("*"))


def has_open_runs(home: Path) -> bool:
    """Whether a run below a DAGSTER_HOME has begun and not ended; also if that is unknown."""
    runs = home / "history" / "runs.db"
    if not runs.exists():
        return False
    try:
        with _opened(runs) as records:
            [is_open] = records.execute(_OPEN_RUNS).fetchone()
    except sqlite3.Error:
        return True
    return bool(is_open)


def _size(file: Path) -> int:
    """The size of a file; 0 of a folder, and of a file that has just been deleted."""
    try:
        return file.stat().st_size if file.is_file() else 0
    except FileNotFoundError:
        return 0


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(
        sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=_BUSY_SECONDS)
    ) as opened:
        yield opened
