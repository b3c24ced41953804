"""Reads runs from Dagster's SQLite files, and deletes records that Dagster's API cannot delete.

Source: dagster 1.13, dagster/_core/storage/event_log/sqlite/sqlite_event_log.py: each run has a
file of events; `index.db` also has the events of assets, checks and run states. Events without a
run have the run id "".
"""

import sqlite3
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from dagster._core.storage.dagster_run import FINISHED_STATUSES  # not public

from lakehouse.core.dagster_retention import RecordedRun

_BUSY_SECONDS = 30  # as long as Dagster itself waits for a writer
# The sensors read the newest 20 observations of a table that others write (`dagster_records.py`).
_OBSERVATIONS = 20
# How many events without a run are kept: about 3 hours of the ranking, which is reported at most
# once a minute.
_EVENTS_WITHOUT_RUN = 200
_VACUUM_BYTES = 32 * 2**20
_CHUNK = 500

# The runs that hold the newest event of a kind, the newest check, or one of the newest
# observations of an asset or partition.
_HOLDERS = """
    SELECT run_id FROM event_logs WHERE id IN (
        SELECT max(id) FROM event_logs WHERE asset_key IS NOT NULL
        GROUP BY asset_key, dagster_event_type, partition)
    UNION SELECT run_id FROM (
        SELECT run_id, row_number() OVER (PARTITION BY asset_key ORDER BY id DESC) AS place
        FROM event_logs WHERE dagster_event_type = 'ASSET_OBSERVATION') WHERE place <= ?
    UNION SELECT run_id FROM asset_check_executions WHERE id IN (
        SELECT max(id) FROM asset_check_executions
        GROUP BY asset_key, check_name, execution_status, partition)
    UNION SELECT last_run_id FROM asset_keys WHERE last_run_id IS NOT NULL
"""
_OLD_WITHOUT_RUN = """
    SELECT id FROM (
        SELECT id, row_number() OVER (
            PARTITION BY asset_key, dagster_event_type, partition ORDER BY id DESC) AS place
        FROM event_logs WHERE run_id = '') WHERE place > ?
"""


@dataclass(frozen=True, slots=True)
class SqliteRecords:
    """The SQLite files below Dagster's folder."""

    home: Path

    def runs(self) -> list[RecordedRun]:
        """All runs in Dagster's records."""
        with self._open(self._runs) as index:
            holders = {run_id for (run_id,) in index.execute(_HOLDERS, [_OBSERVATIONS])}
            with_events = {
                run_id for (run_id,) in index.execute("SELECT DISTINCT run_id FROM event_logs")
            }
        with_events |= {file.stem for file in self._runs.parent.glob("*.db")}
        finished = {status.value for status in FINISHED_STATUSES}
        with self._open(self.home / "history" / "runs.db") as runs:
            rows = runs.execute(
                "SELECT run_id, status, end_time, update_timestamp FROM runs"
            ).fetchall()
        return [
            RecordedRun(
                run_id=run_id,
                ended_ms=_ended_ms(end_time, updated) if status in finished else None,
                holds_newest=run_id in holders,
                has_events=run_id in with_events,
            )
            for run_id, status, end_time, updated in rows
        ]

    def evaluations_before(self, kept: int) -> float | None:
        """The time (epoch seconds) before which evaluations can be deleted to keep `kept` of them.

        `None` if there are no more than `kept`.
        """
        query = (
            "SELECT create_timestamp FROM asset_daemon_asset_evaluations "
            "ORDER BY id DESC LIMIT 1 OFFSET ?"
        )
        with self._open(self._schedules) as schedules:
            row = schedules.execute(query, [kept]).fetchone()
        return None if row is None else _seconds(row[0])

    def events_without_run(self) -> int:
        """Counts the events without a run in `index.db` that are too old to keep."""
        with self._open(self._runs) as index:
            return len(index.execute(_OLD_WITHOUT_RUN, [_EVENTS_WITHOUT_RUN]).fetchall())

    def delete_events_without_run(self) -> None:
        """Deletes old events without a run, in `index.db` and in their own file."""
        for path in (self._runs, self._runs.with_name(".db")):
            if path.exists():
                with self._open(path) as events:
                    ids = [id for (id,) in events.execute(_OLD_WITHOUT_RUN, [_EVENTS_WITHOUT_RUN])]
                    _delete(events, "DELETE FROM asset_event_tags WHERE event_id", ids)
                    _delete(events, "DELETE FROM event_logs WHERE id", ids)

    def delete_checks(self, run_ids: Sequence[str]) -> None:
        """Deletes the check results of these runs."""
        with self._open(self._runs) as index:
            _delete(index, "DELETE FROM asset_check_executions WHERE run_id", run_ids)

    def delete_run_file(self, run_id: str) -> None:
        """Deletes a run's event file."""
        for suffix in (".db", ".db-wal", ".db-shm"):
            self._runs.with_name(run_id + suffix).unlink(missing_ok=True)

    def shrink(self) -> AbstractSet[str]:
        """Rewrites files that are mostly free pages; returns the names of those that shrank."""
        shrunk: set[str] = set()
        for path in (self._runs, self._schedules, self.home / "history" / "runs.db"):
            with self._open(path) as database:
                pages, free, size = (
                    database.execute(f"PRAGMA {name}").fetchone()[0]
                    for name in ("page_count", "freelist_count", "page_size")
                )
                if free * size > _VACUUM_BYTES and free > pages // 2:
                    database.execute("VACUUM")
                    shrunk.add(path.name)
        return shrunk

    @property
    def _runs(self) -> Path:
        return self.home / "history" / "runs" / "index.db"

    @property
    def _schedules(self) -> Path:
        return self.home / "schedules" / "schedules.db"

    @contextmanager
    def _open(self, path: Path) -> Iterator[sqlite3.Connection]:
        """Opens the database in autocommit mode."""
        address = f"{path.absolute().as_uri()}?mode=rw"
        with closing(
            sqlite3.connect(address, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)
        ) as database:
            yield database


def _delete(database: sqlite3.Connection, statement: str, ids: Sequence[int | str]) -> None:
    """Runs the statement for these ids in chunks, so that Dagster's writers wait only briefly."""
    for start in range(0, len(ids), _CHUNK):
        chunk = ids[start : start + _CHUNK]
        database.execute(f"{statement} IN ({','.join('?' * len(chunk))})", list(chunk))


def _ended_ms(end_time: float | None, updated: str) -> int:
    """When a run ended; its last update if it never started and so has no end time."""
    return round((_seconds(updated) if end_time is None else end_time) * 1000)


def _seconds(timestamp: str) -> float:
    """Converts a Dagster timestamp (UTC, without a zone) to seconds since the epoch."""
    return datetime.fromisoformat(timestamp).replace(tzinfo=UTC).timestamp()
