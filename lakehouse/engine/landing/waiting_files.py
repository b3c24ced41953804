"""Finds landed files that wait to be loaded, from listings of the prefix or from queue messages.

Without a queue, each tick of the sensor lists the prefix. With a queue, a tick receives the queue's
messages, keeps the keys in them as hints, and deletes the messages. The prefix is listed by the
first tick of a process, once an hour, and if the queue had very many messages or did not answer.
Otherwise only the hints are looked up. A file waits if the store has it and the ledger does not
have it in its present state.

A load does not rely on any of this: each load lists the prefix itself. So a message that is false,
lost, late or repeated adds and loses nothing (`test_waiting_files.py`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from lakehouse.core.declaration.landing import Landing
from lakehouse.core.declaration.table import Table
from lakehouse.core.errors import Transient
from lakehouse.core.ingest.batches import LandedFile, Ledger
from lakehouse.core.ingest.choose_files import files_that_wait, may_be_loaded
from lakehouse.core.text import count_of
from lakehouse.engine.journal.planned_batches import landed_file, landed_files
from lakehouse.engine.lake import Lake
from lakehouse.engine.landing.queue import MOST_MESSAGES, LandingQueue, created_keys
from lakehouse.engine.store import FairOrder, MountedStore, S3Store, TimeBudget

# The time between two listings of a prefix with a queue. They find files without a message: the
# notification was not configured, or another process received it and has ended.
SWEEP_SECONDS = 3_600
_QUEUES_SHARE = 0.2  # of a tick


@dataclass(slots=True)
class _Waiting:
    """The waiting files of one table by name; `None` marks a hint that was not looked up yet."""

    landing: Landing
    files: dict[str, LandedFile | None] = field(default_factory=dict[str, LandedFile | None])
    last_sweep: float = float("-inf")  # the time of the last listing in seconds


class Discovery:
    """The waiting files of the tables with a queue, kept between the ticks of one process."""

    def __init__(self, lake: Lake, tables: Iterable[Table], budget: TimeBudget) -> None:
        self._lake = lake
        self._budget = budget
        landed = [table for table in tables if lake.settings.on_s3 and table.source is not None]
        self._waiting = {
            table.key: _Waiting(table.landing) for table in landed if table.landing.queue
        }
        names = sorted({each.landing.queue for each in self._waiting.values()})
        self._queues = {name: LandingQueue(name, budget) for name in names}
        self._turns = FairOrder(names)

    def receive(self) -> Sequence[str]:
        """Keeps the hints in the messages of all queues; returns a sentence per queue."""
        sentences = {name: f"queue {name}: left for the next tick" for name in self._queues}
        for name in self._turns.within(self._budget, share=_QUEUES_SHARE):
            try:
                sentences[name] = self._receive_from(self._queues[name])
            except Transient as error:
                sentences[name] = f"{error}; the prefix is listed instead"
                self._sweep(name)
        return [*sentences.values()]

    def waiting_files(
        self, table: Table, ledger: Ledger, *, refresh: bool, now: float
    ) -> Sequence[LandedFile]:
        """The files from which the next batch is chosen: all landed files, or those that wait.

        Without a queue, these are all landed files. With `refresh`, all waiting files are looked up
        again, because a load may have taken or missed some of them.
        """
        waiting = self._waiting.get(table.key)
        if waiting is None:
            return landed_files(self._lake.store, table.landing)
        if now - waiting.last_sweep >= SWEEP_SECONDS:
            files = landed_files(self._lake.store, table.landing)
            waiting.last_sweep = now
        else:
            known = {name: file for name, file in waiting.files.items() if file and not refresh}
            hints = [f"{waiting.landing.prefix}{name}" for name in waiting.files.keys() - known]
            store = self._lake.store
            if isinstance(store, MountedStore):
                store = store.base
            assert isinstance(store, S3Store)  # only lakes on S3 have queues
            found = [landed_file(file, waiting.landing) for file in store.find(sorted(hints))]
            files = [*known.values(), *found]
        loadable = files_that_wait(files, ledger, table.landing)
        waiting.files = {file.name: file for file in loadable}
        return loadable

    def _receive_from(self, queue: LandingQueue) -> str:
        received = queue.receive()
        if len(received) >= MOST_MESSAGES:
            self._sweep(queue.address)
        for message in received:
            keys = created_keys(message.body, self._lake.store.bucket)
            for table_key, waiting in self._waiting.items():
                prefix = f"{self._lake.store.prefix}{waiting.landing.prefix}"
                below = [key.removeprefix(prefix) for key in keys if key.startswith(prefix)]
                names = [name for name in below if may_be_loaded(name, table_key)]
                waiting.files |= dict.fromkeys(names)  # a known file is looked up again, too
        # The hints are in memory. A process that dies with them is followed by one that lists.
        queue.delete(received)
        return f"queue {queue.address}: {count_of(len(received), 'message')}"

    def _sweep(self, queue: str) -> None:
        """Makes `waiting_files` list the prefixes of a queue's tables: messages may be missing."""
        for waiting in self._waiting.values():
            if waiting.landing.queue == queue:
                waiting.last_sweep = float("-inf")
