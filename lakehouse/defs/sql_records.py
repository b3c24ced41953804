"""Reads Dagster's records from its tables, and deletes records that its API cannot delete.

The tables are the same in SQLite and Postgres. In SQLite, each run also has a file with all of its
events, and the event tables contain only events of assets, checks and run states. Events without a
run have the run id "". Source: dagster 1.13, dagster/_core/storage/event_log/schema.py and
sqlite/sqlite_event_log.py.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.storage.dagster_run import FINISHED_STATUSES  # not public
from dagster._core.storage.event_log import SqlEventLogStorage, SqliteEventLogStorage
from dagster._core.storage.runs import SqlRunStorage
from dagster._core.storage.schedules import SqlScheduleStorage
from sqlalchemy import Connection, bindparam, text

from lakehouse.core.dagster_retention import RecordedRun
from lakehouse.runtime.dagster_files import folder_bytes

_BUSY_SECONDS = 30  # as long as Dagster itself waits for a writer
# The runs of this many newest observations of each asset are kept, because the sensors may read 20
# observations of a table that other programs write (`dagster_records.py`).
_OBSERVATIONS = 20
# How many events without a run are kept per asset, type and partition: about 3 hours of the
# compaction sensor's ranking of the tables, which is reported at most once a minute.
_EVENTS_WITHOUT_RUN = 200
# A SQLite file is rewritten if more than this and more than half of its pages are free.
_FREE_BYTES = 32 * 2**20
# One statement deletes at most this many rows, so that Dagster's writers wait only briefly.
_CHUNK = 500

OpenConnection = Callable[[], Any]  # opens a `Connection` for a `with` block

# Runs that hold a record to be kept: the newest event of each asset, type and partition; one of an
# asset's newest `kept` observations; or the newest result of each check, status and partition. An
# asset's last run is among them, too.
_HOLDERS = text("""
    SELECT run_id FROM event_logs WHERE id IN (
        SELECT max(id) FROM event_logs WHERE asset_key IS NOT NULL
        GROUP BY asset_key, dagster_event_type, partition)
    UNION SELECT run_id FROM (
        SELECT run_id, row_number() OVER (PARTITION BY asset_key ORDER BY id DESC) AS place
        FROM event_logs WHERE dagster_event_type = 'ASSET_OBSERVATION') AS observed
        WHERE place <= :kept
    UNION SELECT run_id FROM asset_check_executions WHERE id IN (
        SELECT max(id) FROM asset_check_executions
        GROUP BY asset_key, check_name, execution_status, partition)
    UNION SELECT last_run_id FROM asset_keys WHERE last_run_id IS NOT NULL
""")
_OLD_WITHOUT_RUN = text("""
    SELECT id FROM (
        SELECT id, row_number() OVER (
            PARTITION BY asset_key, dagster_event_type, partition ORDER BY id DESC) AS place
        FROM event_logs WHERE run_id = '') AS runless WHERE place > :kept
""")
_WITH_EVENTS = text("SELECT DISTINCT run_id FROM event_logs")
_RUNS = text("SELECT run_id, status, end_time, update_timestamp FROM runs")
_EVALUATIONS = text(
    "SELECT create_timestamp FROM asset_daemon_asset_evaluations ORDER BY id DESC "
    "LIMIT 1 OFFSET :kept"
)
_DATABASE_BYTES = text("SELECT pg_database_size(current_database())")
_DELETE_TAGS = "DELETE FROM asset_event_tags WHERE event_id IN :ids"
_DELETE_EVENTS = "DELETE FROM event_logs WHERE id IN :ids"
_DELETE_CHECKS = "DELETE FROM asset_check_executions WHERE run_id IN :ids"


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlRecords:
    """The tables of an instance in SQLite or Postgres; `open_records` opens them."""

    home: Path
    events: SqlEventLogStorage
    run_storage: SqlRunStorage
    schedules: SqlScheduleStorage

    @property
    def in_files(self) -> bool:
        """Whether the records are in SQLite files."""
        return isinstance(self.events, SqliteEventLogStorage)

    def runs(self) -> list[RecordedRun]:
        """All runs in Dagster's records."""
        with self.events.index_connection() as index:
            holders = set(index.scalars(_HOLDERS, {"kept": _OBSERVATIONS}))
            with_events = set(index.scalars(_WITH_EVENTS))
        if self.in_files:
            with_events |= {file.stem for file in self._run_files.glob("*.db")}
        finished = {status.value for status in FINISHED_STATUSES}
        with self.run_storage.connect() as runs:
            rows = runs.execute(_RUNS).fetchall()
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
        """The time (epoch seconds) before which evaluations of conditions can be deleted.

        At least the newest `kept` evaluations stay. `None` if there are at most `kept`.
        """
        with self.schedules.connect() as schedules:
            created = schedules.scalar(_EVALUATIONS, {"kept": kept})
        return None if created is None else _seconds(created)

    def events_without_run(self) -> int:
        """Counts the events without a run that `delete_events_without_run` would delete."""
        with self.events.index_connection() as index:
            return len(_old_without_run(index))

    def delete_events_of_run(self, run_id: str) -> None:
        """Deletes a run's events from the tables. In SQLite, the run's file stays."""
        with self.events.index_connection() as index:
            self.events.delete_events_for_run(index, run_id)

    def delete_events_without_run(self) -> None:
        """Deletes all but the newest events without a run; in SQLite, also from their own file."""
        databases: list[OpenConnection] = [self.events.index_connection]
        if self.in_files and (self._run_files / ".db").exists():
            databases.append(lambda: self.events.run_connection(""))
        for connect in databases:
            with connect() as connection:
                ids = _old_without_run(connection)
            _delete(connect, _DELETE_TAGS, ids)
            _delete(connect, _DELETE_EVENTS, ids)

    def delete_checks(self, run_ids: Sequence[str]) -> None:
        """Deletes the check results of these runs."""
        _delete(self.events.index_connection, _DELETE_CHECKS, run_ids)

    def delete_run_file(self, run_id: str) -> None:
        """Deletes a run's file of events, if it has one."""
        if self.in_files:
            for suffix in (".db", ".db-wal", ".db-shm"):
                (self._run_files / f"{run_id}{suffix}").unlink(missing_ok=True)

    def shrink(self) -> AbstractSet[str]:
        """Rewrites SQLite files that are mostly free pages; returns the names of these files.

        Postgres shrinks its tables itself (autovacuum).
        """
        if not self.in_files:
            return set()
        shrunk: set[str] = set()
        for path in (
            self._run_files / "index.db",
            self.home / "schedules" / "schedules.db",
            self.home / "history" / "runs.db",
        ):
            address = f"{path.absolute().as_uri()}?mode=rw"
            with closing(
                sqlite3.connect(address, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)
            ) as database:
                page_count = database.execute("PRAGMA page_count").fetchone()[0]
                free_count = database.execute("PRAGMA freelist_count").fetchone()[0]
                page_bytes = database.execute("PRAGMA page_size").fetchone()[0]
                if free_count * page_bytes > _FREE_BYTES and free_count > page_count // 2:
                    database.execute("VACUUM")
                    shrunk.add(path.name)
        return shrunk

    def size_bytes(self) -> int:
        """The bytes of Dagster's folder, or of the Postgres database."""
        if self.in_files:
            return folder_bytes(self.home)
        with self.run_storage.connect() as runs:
            return int(runs.scalar(_DATABASE_BYTES))

    @property
    def _run_files(self) -> Path:
        return self.home / "history" / "runs"


def open_records(instance: dg.DagsterInstance) -> SqlRecords | None:
    """The tables of the instance; `None` if they are neither in SQLite files nor in Postgres."""
    events = instance.event_log_storage
    runs = instance.run_storage
    schedules = instance.schedule_storage
    if (
        not isinstance(events, SqlEventLogStorage)
        or not isinstance(runs, SqlRunStorage)
        or not isinstance(schedules, SqlScheduleStorage)
    ):
        return None
    in_postgres = type(events).__name__ == "PostgresEventLogStorage"  # an optional package
    if not in_postgres and not isinstance(events, SqliteEventLogStorage):
        return None
    return SqlRecords(
        home=Path(instance.root_directory), events=events, run_storage=runs, schedules=schedules
    )


@contextmanager
def one_connection(instance: dg.DagsterInstance) -> Iterator[None]:
    """In this block, the event log's queries share one Postgres connection.

    Outside of its web server, Dagster opens a connection for each query. The newest facts of 100
    tables took 5.3 s that way, and 0.9 s over one connection. With SQLite, nothing changes.
    """
    storage: Any = instance.event_log_storage
    if type(storage).__name__ != "PostgresEventLogStorage":  # an optional package
        yield
        return
    unshared = storage._engine  # not public
    storage.optimize_for_webserver(
        statement_timeout=60_000,  # milliseconds; a tick may take no longer
        pool_recycle=3600,
        max_overflow=10,
    )
    shared = storage._engine
    try:
        yield
    finally:
        # Each tick opens its own instance. Without this, the connection would stay open until the
        # instance is garbage collected.
        storage._engine = unshared
        shared.dispose()


def _old_without_run(connection: Connection) -> list[int]:
    return list(connection.scalars(_OLD_WITHOUT_RUN, {"kept": _EVENTS_WITHOUT_RUN}))


def _delete(connect: OpenConnection, statement: str, ids: Sequence[int | str]) -> None:
    """Runs the statement for these ids, in chunks."""
    deletion = text(statement).bindparams(bindparam("ids", expanding=True))
    for start in range(0, len(ids), _CHUNK):
        with connect() as connection:
            connection.execute(deletion, {"ids": list(ids[start : start + _CHUNK])})


def _ended_ms(end_time: float | None, updated: Any) -> int:
    """When a run ended. A run that never started has no end time; its last update counts."""
    return round((_seconds(updated) if end_time is None else end_time) * 1000)


def _seconds(timestamp: Any) -> float:
    """Converts a Dagster timestamp (UTC, without a zone) to seconds since the epoch.

    SQLite returns a text, Postgres a `datetime`.
    """
    time = timestamp if isinstance(timestamp, datetime) else datetime.fromisoformat(timestamp)
    return time.replace(tzinfo=UTC).timestamp()
