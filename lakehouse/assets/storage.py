"""Dagster's records in SQLite, with connections that stay open.

Dagster writes each event in a transaction of its own, with a new engine of SQLAlchemy and a new
connection. A new engine compiles each statement again, and SQLite copies its log of changes to the
file when the last connection closes. Both together take more than half of the processor time of an
event, and a run of seven assets has 180 events. Source: dagster 1.13, sqlite_event_log.py,
`_connect`; SQLite, "Write-Ahead Logging", section 2.1
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
from dagster._core.storage.sqlite import SQLITE_BUSY_TIMEOUT_SECONDS
from dagster._core.storage.sqlite_storage import SqliteStorageConfig
from dagster._serdes import ConfigurableClassData
from sqlalchemy import Connection, Engine, create_engine


class EventLog(SqliteEventLogStorage):
    """Dagster's SQLite files of events, in the same places."""

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData | None, config_value: SqliteStorageConfig
    ) -> "EventLog":
        """The storage that a dagster.yaml describes."""
        return cls(inst_data=inst_data, **config_value)

    @contextmanager
    def _connect(self, shard: str) -> Iterator[Connection]:
        engine = _engine(self.conn_string_for_shard(shard))
        with self._db_lock:
            if shard not in self._initialized_dbs:
                self._initdb(engine)
                self._initialized_dbs.add(shard)
            with engine.begin() as connection:
                yield connection


@lru_cache(16)  # one for the index of all runs, and one for each of the last runs
def _engine(address: str) -> Engine:
    return create_engine(address, connect_args={"timeout": SQLITE_BUSY_TIMEOUT_SECONDS})
