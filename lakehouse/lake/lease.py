"""Leases on tables, so that two processes do not do the same work, and the check of the clock.

A lease is an object in the lake, `_lakehouse/locks/<layer>/<name>.json`, the same for every home
and machine. It is created only if it is absent. Its holder renews it while it works, and deletes it
afterwards. A lease may be taken if it was not renewed for `LEASE_SECONDS`, or at once if its holder
was a process of this machine that has ended.

No result depends on a lease: a holder that was paused for long may find that another process holds
the table, too. What a second process must not do is refused by the commit itself: a version is
created only if it is absent, a batch has a transaction id, and Delta finds conflicts.
"""

import contextlib
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import uuid4

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import Refused, Transient
from lakehouse.base.processes import Process, identify, process_space
from lakehouse.base.text import Document, printable
from lakehouse.delta.commits import json_object
from lakehouse.lake.commits import refuse_unsafe_commits
from lakehouse.lake.lake import Lake
from lakehouse.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The store's modification time of this file shows the storage's time.
_CLOCK = "_lakehouse/clock"
_MAX_DIFFERENCE_MS = 300_000


def check_clock(lake: Lake, table_key: str) -> None:
    """Refuses if this machine's clock and the storage's clock differ by more than five minutes.

    Otherwise, a file could be past the retention by one clock, but not by the other. For a table in
    a bucket outside the lake, this bucket's clock (the date of a response) is checked, too.
    """
    lake.store.put(_CLOCK, b"")
    stored = lake.store.stat(_CLOCK)
    lake_ms = None if stored is None else stored.modified_ms
    table_ms = lake.clock_ms(table_key)
    differences_ms = [abs(now_ms() - ms) for ms in (lake_ms, table_ms) if ms is not None]
    difference_ms = max(differences_ms, default=0)
    if difference_ms > _MAX_DIFFERENCE_MS:
        raise Refused(
            f"{table_key}: this machine's clock and the storage's clock differ by "
            f"{difference_ms / 1_000:.0f} s (limit {_MAX_DIFFERENCE_MS / 1_000:.0f} s). "
            "Synchronize this machine's clock with a time server, then try again"
        )


LOCKS = "_lakehouse/locks"
LEASE_SECONDS = 45.0
WAIT_SECONDS = 60.0
# The pauses between two attempts to take a lease.
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 2.0
# Without handlers, as in a command, Python prints warnings to standard error.
_LOG = logging.getLogger(__name__)
# The leases that this process holds, by their tokens.
_held: set[str] = set()


@contextlib.contextmanager
def hold(
    lake: Lake,
    spark: "SparkSession | None",
    table_key: str,
    *,
    owner: str,
    wait_seconds: float = WAIT_SECONDS,
) -> Iterator[None]:
    """Holds the table's lease inside the `with` block. `owner` names the operation.

    The session, if any, is prepared for statements that write.

    Raises:
        Refused: a commit to the table could overwrite a commit of another program.
        Transient: another process holds the lease longer than `wait_seconds`.
    """
    if spark is not None:
        # Imported here, because upkeep without Spark does not need it.
        from lakehouse.spark.session import prepare_session

        prepare_session(spark)
        refuse_unsafe_commits(lake, spark, table_key, asked=owner)
    lease = _Lease(lake.store, table_key, owner)
    lease.take(wait_seconds)
    try:
        lease.start()
        yield
    finally:
        lease.give_back()


class _Lease(threading.Thread):
    """A lease on a table, and the thread that renews it."""

    def __init__(self, store: Store, table_key: str, owner: str) -> None:
        super().__init__(daemon=True, name=f"lease of {table_key}")
        self._store = store
        self._table = table_key
        self._owner = owner
        self._object = f"{LOCKS}/{table_key}.json"
        self._token = uuid4().hex
        self._ended = threading.Event()
        self._renewed = 0.0
        process = identify(os.getpid())
        record = {
            "token": self._token,
            "owner": owner,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "born": process.born if process else None,
            "space": process_space(),
        }
        self._content = json.dumps(record, indent=1).encode()

    def take(self, wait_seconds: float) -> None:
        """Creates the lease; waits for another holder at most `wait_seconds`."""
        started = time.monotonic()
        pause = _FIRST_PAUSE_SECONDS
        is_reported = False
        while True:
            self._renewed = time.monotonic()
            _held.add(self._token)
            is_taken = False
            try:
                is_taken = self._store.put_if_absent(self._object, self._content)
            finally:  # after an error, the lease is nobody's, even if the object was created
                if not is_taken:
                    _held.discard(self._token)
            if is_taken:
                return
            holder = _read_holder(self._store, self._object)
            if holder is not None and _has_ended(self._store, self._object, holder):
                self._store.delete([self._object])
            elif time.monotonic() - started >= wait_seconds:
                raise Transient(
                    f"{self._owner}: {self._table} has been locked for more than "
                    f"{wait_seconds:.0f} s by {_sentence(holder)}. Try again when that process has "
                    "ended"
                )
            else:
                if holder and not is_reported:
                    why = printable(f"{self._table} is locked by {_sentence(holder)}")
                    _LOG.warning("%s: %s. Waits up to %.0f s", self._owner, why, wait_seconds)
                    is_reported = True
                time.sleep(pause)  # storage cannot tell when another process gives its lease back
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def run(self) -> None:
        """Renews the lease until it is given back, or could not be renewed in time."""
        while not self._ended.wait(LEASE_SECONDS / 3) and self._is_ours:
            started = time.monotonic()
            with contextlib.suppress(Exception):  # the next renewal may succeed
                self._store.put(self._object, self._content)
                self._renewed = started

    def give_back(self) -> None:
        """Deletes the lease, unless it may be another holder's by now."""
        self._ended.set()
        if self.is_alive():
            self.join()
        _held.discard(self._token)
        with contextlib.suppress(Exception):  # it ends by itself
            if self._is_ours:
                self._store.delete([self._object])

    @property
    def _is_ours(self) -> bool:
        return time.monotonic() - self._renewed < LEASE_SECONDS


def _read_holder(store: Store, name: str) -> Document | None:
    """The record of a lease; empty if it is damaged, `None` if it was just given back."""
    with contextlib.suppress(FileNotFoundError):
        return json_object(store.read(name))
    return None


def _has_ended(store: Store, name: str, holder: Document) -> bool:
    """Whether the holder's process has ended, as far as this machine knows, or its lease has."""
    space = process_space()
    if space is not None and holder.get("space") == space:
        if holder["pid"] == os.getpid() and holder["token"] not in _held:
            return True
        if not Process(pid=holder["pid"], born=holder["born"]).is_alive:
            return True
    stored = store.stat(name)
    # A time in the future counts as old, too: the clock of the storage was set back.
    return stored is not None and abs(now_ms() - stored.modified_ms) > LEASE_SECONDS * 1_000


def _sentence(holder: Document | None) -> str:
    if not holder:
        return "an unknown process"
    return f"process {holder.get('pid')} on {holder.get('host')} ({holder.get('owner')})"
