"""Finds landed files that wait to be loaded, from listings of the prefix or a queue's messages.

Without a queue, each tick of the sensor lists the prefix. With a queue:

1. The messages of the queue are received, and are then invisible to later ticks for an hour. The
   keys that they name are hints.
2. The prefix is listed once an hour, and after a queue had very many messages or did not answer.
   Otherwise only the hints are looked up. A file waits if the store has it and the ledger does not.
3. Messages whose files no longer wait are deleted.

A run does not rely on any of this: it lists the prefix itself.

**Safety properties** (tests in `test_landed_files.py`)
- Only files that the store has are loaded. A message that is false, late, repeated or out of order
  adds nothing.
- A message is deleted when each of its files is gone from the store, or is named by the ledger
  while every planned batch has arrived. A message that names no file below a prefix of its queue is
  deleted, too. An unreadable message is left in the queue.
- The state is kept in memory only: a new process lists the prefix first.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from lakehouse.core.declaration.landing import Landing
from lakehouse.core.declaration.table import Table
from lakehouse.core.errors import LakehouseError
from lakehouse.core.ingest.batches import LandedFile, Ledger
from lakehouse.core.ingest.next_batch import files_that_wait, may_be_loaded
from lakehouse.core.text import count_of
from lakehouse.engine.journal.planned_batches import landed_file, landed_files
from lakehouse.engine.lake import Lake
from lakehouse.engine.landing.queue import MOST_MESSAGES, LandingQueue, Message, created_keys
from lakehouse.engine.store import FairOrder, MountedStore, S3Store, TimeBudget

# Seconds between two sweeps (listings of a prefix), and until an undeleted message is received
# again. SQS loses no message, so a sweep is only needed for files without one: the notification was
# not configured, or has expired. For 100,000 files a sweep takes 100 requests, as many as each tick
# without a queue.
SWEEP_SECONDS = 3_600
# The queues are served before the tables, and must leave most of a tick to the tables.
_QUEUES_SHARE = 0.2
# One request deletes ten messages, and a tick has 60 seconds.
MOST_DELETED = 1_000
# A message, and the table keys and file names that it is about.
OpenMessage = tuple[Message, set[tuple[str, str]]]


@dataclass(slots=True)
class _Waiting:
    """The waiting files of one table by name; `None` is a hint that was not looked up yet.

    `swept` is the time of the last sweep.
    """

    landing: Landing
    files: dict[str, LandedFile | None] = field(default_factory=dict[str, LandedFile | None])
    swept: float = float("-inf")


@dataclass(slots=True)
class _Inbox:
    """A queue and its open messages by id, each with the tables and file names that it is about."""

    queue: LandingQueue
    messages: dict[str, OpenMessage] = field(default_factory=dict[str, OpenMessage])
    unreadable: set[str] = field(default_factory=set[str])
    sentence: str = ""


class Discovery:
    """The waiting files of some tables, kept between the ticks of one process. Not thread-safe."""

    def __init__(
        self, lake: Lake, tables: Iterable[Table], budget: TimeBudget | None = None
    ) -> None:
        self._lake = lake
        self._budget = budget or TimeBudget()
        sources = {table.key: table.source for table in tables if lake.settings.on_s3}
        self._waiting = {
            key: _Waiting(source)
            for key, source in sources.items()
            if source is not None and source.queue
        }
        names = sorted({each.landing.queue for each in self._waiting.values()})
        self._inboxes = {name: _Inbox(LandingQueue(name, self._budget)) for name in names}
        self._turns = FairOrder(names)

    def receive(self) -> None:
        """Receives messages; `settle` reports queues that did not answer or had no turn."""
        for inbox in self._inboxes.values():
            inbox.sentence = f"queue {inbox.queue.address}: left for the next tick"
        for name in self._turns.within(self._budget, share=_QUEUES_SHARE):
            inbox = self._inboxes[name]
            try:
                received = inbox.queue.receive(hidden_seconds=SWEEP_SECONDS)
            except LakehouseError as error:
                inbox.sentence = f"{error}; the prefix is listed instead"
                self._sweep(inbox)
                continue
            if len(received) >= MOST_MESSAGES:
                self._sweep(inbox)
            unreadable = [
                message.id for message in received if not self._take_hints(inbox, message)
            ]
            inbox.sentence = f"queue {inbox.queue.address}: {count_of(len(received), 'message')}"
            if new := [each for each in unreadable if each not in inbox.unreadable]:
                inbox.sentence += f"; {len(new)} not from S3 stay in it, the first is {new[0]}"
            inbox.unreadable.update(new)

    def waiting_files(
        self, table: Table, ledger: Ledger, *, refresh: bool, now: float
    ) -> Sequence[LandedFile]:
        """The files that may be loaded next.

        Must not be called while a batch is unfinished, so that the messages of its files are kept.
        With `refresh`, all waiting files are looked up again, because a run may have loaded or
        missed some of them.
        """
        waiting = self._waiting.get(table.key)
        if waiting is None:
            return landed_files(self._lake.store, table.landing)
        if now - waiting.swept >= SWEEP_SECONDS:
            files = landed_files(self._lake.store, table.landing)
            waiting.swept = now
        else:
            seen = [] if refresh else [file for file in waiting.files.values() if file is not None]
            hints = [
                f"{waiting.landing.prefix}{name}"
                for name, file in waiting.files.items()
                if refresh or file is None
            ]
            store = (
                self._lake.store.base
                if isinstance(self._lake.store, MountedStore)
                else self._lake.store
            )
            assert isinstance(store, S3Store)  # only lakes on S3 have queues
            files = [*seen, *(landed_file(file, waiting.landing) for file in store.find(hints))]
        still = files_that_wait(files, ledger, table.landing)
        waiting.files = {file.name: file for file in still}
        return still

    def settle(self) -> Sequence[str]:
        """Deletes the messages whose files no longer wait; returns a sentence per queue."""
        for inbox in self._inboxes.values():
            open_messages = inbox.messages.values()
            settled = [
                message
                for message, places in open_messages
                if not any(name in self._waiting[key].files for key, name in places)
            ]
            del settled[MOST_DELETED:]
            try:
                inbox.queue.delete(settled)
                inbox.sentence += f", {len(settled)} deleted" if settled else ""
            except LakehouseError as error:
                inbox.sentence += f"; {error}"
            for message in settled:  # an undeleted message is received again
                del inbox.messages[message.id]
        return [inbox.sentence for inbox in self._inboxes.values()]

    def _take_hints(self, inbox: _Inbox, message: Message) -> bool:
        """Records the keys in a message as hints for all tables; false if it is not from S3."""
        keys = created_keys(message.body, self._lake.store.bucket)
        if keys is None:
            return False
        places = set[tuple[str, str]]()
        for table_key, waiting in self._waiting.items():
            prefix = f"{self._lake.store.prefix}{waiting.landing.prefix}"
            below = [
                key.removeprefix(prefix)
                for key in keys
                if key.startswith(prefix) and not key.endswith("/")
            ]
            names = [name for name in below if may_be_loaded(name, table_key)]
            waiting.files |= dict.fromkeys(names)
            places |= {(table_key, name) for name in names}
        inbox.messages[message.id] = message._replace(body=""), places
        return True

    def _sweep(self, inbox: _Inbox) -> None:
        """Makes the next tick list the prefixes of a queue's tables: some messages are unknown."""
        for waiting in self._waiting.values():
            if waiting.landing.queue == inbox.queue.address:
                waiting.swept = float("-inf")
