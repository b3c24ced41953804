"""Locks a table, so that only one process maintains it at a time.

0. The Spark driver in the settings must be allowed to write to the lake (`commit_safety.py`). Each
   process checks this once.
1. A lock on this machine is taken. If the process dies, for any reason, the kernel frees the lock.
2. If an earlier holder died, its session may still run a statement on the server. We interrupt this
   session, record the interrupted operations, and wait until the operations have ended. If we die,
   too, the next holder finds the record and waits for the same operations. A driver in this process
   cannot interrupt a server's sessions. While the server runs, such a driver is refused, because
   the dead process's statement could overwrite our commits. With conditional commits, it could not.
3. Our own session, if there is one, is recorded for the next holder.
4. The operation runs. Most operations are repeated after a conflict (`retry_conflicts`).
5. The record is removed. After a failure, our own session is interrupted first. If a statement may
   still be running after that, the record is kept.

**Safety properties** (tests in `test_races.py`, `test_kills.py`)
- Between steps 2 and 5, no other process that ever took this lock, dead or alive, has a statement
  on this Spark driver that writes to the table.
- A statement of another driver cannot overwrite our commit. The other driver's commit conflicts
  with ours, or finds its own transaction id in the log.
"""

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from lakehouse.core.errors import Broken, Refused, Transient
from lakehouse.core.settings import Settings
from lakehouse.engine.clock import now_ms
from lakehouse.engine.commit_safety import claim, spark_commits_conditionally
from lakehouse.engine.journal.records import encoded
from lakehouse.engine.lake import Lake
from lakehouse.engine.spark.errors import is_lost
from lakehouse.engine.spark.prepare_session import (
    interrupt_session,
    over_connect,
    prepare_session,
    session_id,
)
from lakehouse.engine.store import Store
from lakehouse.runtime.processes import hold_lock
from lakehouse.runtime.server_state import status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT_SECONDS = 60.0
# A table has at most one session record, `<layer>/<name>.json`. Each holder that has a session
# replaces it.
_SESSIONS = "_lakehouse/sessions"


@contextlib.contextmanager
def hold(
    lake: Lake,
    spark: "SparkSession | None",
    table_key: str,
    *,
    owner: str,
    wait_seconds: float = WAIT_SECONDS,
) -> Iterator[None]:
    """Holds the table's lock inside the `with` block. `owner` names the operation.

    Without a session, this is `hold_without_session`.

    Raises:
        Refused: the lake belongs to another driver, or a dead process may have left a statement
            running that this driver cannot end.
        Transient: another process holds the lock longer than `wait_seconds`, or the session of a
            dead process cannot be ended now.
        Broken: the session record of an earlier holder is damaged.
    """
    with hold_without_session(lake, table_key, owner=owner, wait_seconds=wait_seconds):
        if spark is None:
            yield
            return
        prepare_session(spark)
        own_id = session_id(spark)
        record_session(lake.store, table_key, own_id, owner)
        try:
            yield
        except BaseException as error:
            if not is_lost(error) and _is_idle_after_interrupt(spark):
                forget_session(lake.store, table_key, own_id)
            raise
        forget_session(lake.store, table_key, own_id)


@contextlib.contextmanager
def hold_without_session(
    lake: Lake, table_key: str, *, owner: str, wait_seconds: float = WAIT_SECONDS
) -> Iterator[None]:
    """Holds the table's lock, for writes without Spark.

    In the block, no statement of a dead process is still running on this driver. Raises as `hold`.
    """
    with hold_alone(lake, table_key, owner=owner, wait_seconds=wait_seconds):
        previous = session_of(lake.store, table_key)
        if previous is not None:
            previous_id = previous.session_id
            if _may_run(previous, lake.settings):
                if not spark_commits_conditionally(lake):
                    _refuse_driver_beside_server(lake.settings, asked=owner)
                # Records the interrupted operations, in case this process dies, too.
                note = partial(record_session, lake.store, table_key, previous_id, previous.owner)
                interrupt_session(lake.settings, previous_id, previous.operations, note=note)
            forget_session(lake.store, table_key, previous_id)
        yield


@contextlib.contextmanager
def hold_alone(
    lake: Lake, table_key: str, *, owner: str, wait_seconds: float = WAIT_SECONDS
) -> Iterator[None]:
    """Holds the table's lock, for work that sends no Spark statement.

    In the block, a statement of a dead process may still be running.

    Raises:
        Refused: the lake belongs to another driver.
        Transient: another process holds the lock longer than `wait_seconds`.
    """
    claim(lake, asked=owner)
    path = lake.settings.home / "locks" / f"{table_key.replace('/', '.')}.lock"
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(hold_lock(path, seconds=wait_seconds))
        except BlockingIOError as error:
            holder = path.read_text(encoding="utf-8").strip() or "an unknown process"
            raise Transient(
                f"{owner}: {table_key} has been locked for more than {wait_seconds:.0f} s by "
                f"{holder}. Try again when that process has ended"
            ) from error
        file.truncate(0)
        file.write(f"process {os.getpid()} ({owner})")
        file.flush()
        yield


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """The Spark session that writes to a table, or that wrote to it when its process died.

    `owner` names the session's operation. `operations` are Spark operations that a later holder of
    the lock interrupted without observing their end.
    """

    session_id: str
    owner: str
    started_ms: int
    operations: tuple[str, ...] = ()


def record_session(
    store: Store, table_key: str, session_id: str, owner: str, operations: Sequence[str] = ()
) -> None:
    """Records the session that is about to write to a table, or wrote to it until its process died.

    Replaces an earlier record.
    """
    record = SessionRecord(
        session_id=session_id, owner=owner, started_ms=now_ms(), operations=tuple(operations)
    )
    store.put(_record_name(table_key), encoded(asdict(record)))


def session_of(store: Store, table_key: str) -> SessionRecord | None:
    """The recorded session of a table; `None` if the last session, if any, ended normally.

    Raises:
        Broken: the record is damaged.
    """
    name = _record_name(table_key)
    try:
        content = json.loads(store.read(name))
        return SessionRecord(
            session_id=content["session_id"],
            owner=content["owner"],
            started_ms=content["started_ms"],
            operations=tuple(content["operations"]),
        )
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        raise Broken(
            f"{name}, which names the Spark session that writes {table_key}, cannot be read "
            f"({type(error).__name__}). First stop the Spark server (lakehouse server stop, or "
            "Ctrl-C where lakehouse up runs), then delete this record"
        ) from error


def forget_session(store: Store, table_key: str, session_id: str) -> None:
    """Removes the record of a session that has ended; keeps another session's record."""
    record = session_of(store, table_key)
    if record is not None and record.session_id == session_id:
        store.delete([_record_name(table_key)])


def _record_name(table_key: str) -> str:
    return f"{_SESSIONS}/{table_key}.json"


def _may_run(record: SessionRecord, settings: Settings) -> bool:
    """Whether a statement of the session may still run on a Connect server.

    The ids of a server's sessions are UUIDs. A session with another id belonged to a driver that
    died with its process. The sessions of this home's server end when the server ends.
    """
    try:
        UUID(record.session_id)
    except ValueError:
        return False
    return settings.spark != "server" or status(settings).pid is not None


def _refuse_driver_beside_server(settings: Settings, *, asked: str) -> None:
    """Refuses a driver in this process while the home's Spark Connect server runs.

    The server may still run a statement of a dead process, and a driver in this process cannot
    interrupt the server's sessions.
    """
    pid = None if over_connect(settings) else status(settings).pid
    if pid is not None:
        raise Refused(
            f"{asked}: in this home's Spark Connect server (process {pid}), a statement of a "
            "process that died may still write this table, and a driver with "
            f"LAKEHOUSE_SPARK={settings.spark} cannot end that statement. Either use the server "
            "(LAKEHOUSE_SPARK=server), or stop the server first "
            "(lakehouse server stop, or Ctrl-C where lakehouse up runs)"
        )


def _is_idle_after_interrupt(spark: "SparkSession") -> bool:
    """Interrupts our own session; true if it is certain that no statement is still running."""
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    if not isinstance(spark, ConnectSession):
        return True  # in a driver in this process, an exception ends the statement
    try:
        interrupted_operations = spark.interruptAll()
    except Exception:
        return False
    return not interrupted_operations
