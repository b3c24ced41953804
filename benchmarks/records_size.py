"""Measures the size of Dagster's own records: `python -m benchmarks.records_size [MINUTES]`.

The demo runs for some minutes. Its records are then copied under new ids at the same rate, half an
hour at a time, and the real upkeep runs every hour. The folder is measured after a simulated day.
"""

import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from itertools import cycle, islice
from pathlib import Path
from uuid import uuid4

import dagster as dg

from benchmarks.figures import Figure, alone
from lakehouse.assets.dagster_records import delete_rest, delete_runs, old_runs
from lakehouse.base.text import DAY_MS, MINUTE_MS
from lakehouse_tests.journeys.world import World

_TICK_MS = 30 * MINUTE_MS
_DAY_GB = 0.4
_COPIES = {  # file below Dagster's folder -> its tables of rows that belong to a run
    "history/runs.db": ("runs", "run_tags"),
    "history/runs/index.db": ("event_logs", "asset_check_executions"),
}
_RATES = {"schedules/schedules.db": ("job_ticks", "asset_daemon_asset_evaluations")}


def main(minutes: float = 10) -> list[Figure]:
    """The size after a day of the demo at full speed."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        with World(home, LAKEHOUSE_SPARK_MEMORY="1g"):
            time.sleep(minutes * 60)  # what the demo writes in that time is what is measured
        return simulated_day(home / "dagster", minutes=minutes)


def simulated_day(home: Path, *, minutes: float) -> list[Figure]:
    """Figures from the records that the demo wrote to `home` in so many minutes."""
    written = _size(home)
    records = _Copies(home, minutes=minutes)
    began_ms = now_ms = round(time.time() * 1000)
    with dg.DagsterInstance.from_config(str(home)) as instance:
        while now_ms < began_ms + DAY_MS:
            now_ms += _TICK_MS
            records.add_half_hour(now_ms)
            if (now_ms - began_ms) // _TICK_MS % 2 == 0:  # upkeep runs every hour
                delete_runs(instance, old_runs(instance, days=7, now_ms=now_ms))
                delete_rest(instance, now_ms=now_ms)
    day, rows_a_day = _size(home), records.runs_a_day
    bytes_a_day = written * 24 * 60 / minutes
    return [
        Figure(
            name="Dagster's records after a day of the demo at full speed",
            value=day / 1e9,
            unit="GB",
            at_most=_DAY_GB,
        ),
        Figure(name="what a day would write without upkeep", value=bytes_a_day / 1e9, unit="GB"),
        Figure(name="runs in that day", value=rows_a_day, unit=""),
    ]


class _Copies:
    """Copies the records of a short run, at the rate at which they were written."""

    def __init__(self, home: Path, *, minutes: float) -> None:
        self._home = home
        with self._open("history/runs.db") as runs:
            ids = [
                run_id
                for (run_id,) in runs.execute("SELECT run_id FROM runs WHERE status = 'SUCCESS'")
            ]
            self.runs: int = runs.execute("SELECT count(*) FROM runs").fetchone()[0]
        self._templates = cycle(ids)
        self._aside = home.with_name("templates")
        self._a_half_hour = round(self.runs * 30 / minutes)
        self.runs_a_day = 48 * self._a_half_hour
        self._rows: dict[str, dict[str, list[dict[str, object]]]] = {}
        for name, tables in {**_COPIES, **_RATES}.items():
            with self._open(name) as database:
                database.row_factory = sqlite3.Row
                self._rows[name] = {
                    table: [dict(row) for row in database.execute(f"SELECT * FROM {table}")]  # noqa: S608
                    for table in tables
                }
        self._share = 30 / minutes
        shutil.copytree(home, self._aside)

    def add_half_hour(self, now_ms: int) -> None:
        """Writes the records of half an hour, as of `now_ms`."""
        new_ids = [(old, str(uuid4())) for old in islice(self._templates, self._a_half_hour)]
        self.runs += len(new_ids)
        for old, new in new_ids:
            shutil.copyfile(
                self._aside / "history" / "runs" / f"{old}.db",
                self._home / "history" / "runs" / f"{new}.db",
            )
            if (self._aside / "logs" / old).exists():
                shutil.copytree(self._aside / "logs" / old, self._home / "logs" / new)
        for name, tables in _COPIES.items():
            with self._open(name) as database:
                for table in tables:
                    for old, new in new_ids:
                        found = [row for row in self._rows[name][table] if row["run_id"] == old]
                        _insert(database, table, [_renamed(row, old, new, now_ms) for row in found])
        for name, tables in _RATES.items():
            with self._open(name) as database:
                for table in tables:
                    count = round(len(self._rows[name][table]) * self._share)
                    found = islice(cycle(self._rows[name][table]), count)
                    _insert(database, table, [_renamed(row, "", "", now_ms) for row in found])

    def _open(self, name: str) -> "closing[sqlite3.Connection]":
        return closing(sqlite3.connect(self._home / name, isolation_level=None))


def _renamed(row: Mapping[str, object], old: str, new: str, now_ms: int) -> dict[str, object]:
    """The row of another run, as of that time."""
    at = datetime.fromtimestamp(now_ms / 1000, tz=UTC).replace(tzinfo=None).isoformat(sep=" ")
    found = {
        name: value.replace(old, new) if isinstance(value, str) and old else value
        for name, value in row.items()
        if name != "id"
    }
    found |= {
        name: at for name in ("timestamp", "create_timestamp", "update_timestamp") if name in row
    }
    found |= {name: now_ms / 1000 for name in ("start_time", "end_time") if name in row}
    if "evaluation_id" in row:
        found["evaluation_id"] = uuid4().int % 2**62  # one row for each evaluation and asset
    return found


def _insert(database: sqlite3.Connection, table: str, rows: list[dict[str, object]]) -> None:
    if not rows:
        return
    names, marks = ", ".join(rows[0]), ", ".join("?" * len(rows[0]))
    database.execute("BEGIN")
    database.executemany(
        f"INSERT INTO {table} ({names}) VALUES ({marks})",  # noqa: S608
        [list(row.values()) for row in rows],
    )
    database.execute("COMMIT")


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


if __name__ == "__main__":
    sys.exit(alone(main))
