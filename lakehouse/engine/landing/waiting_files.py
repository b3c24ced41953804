"""Finds landed files that wait to be loaded, from listings of the prefix or from queue messages.

Without a queue, each tick of the sensor lists the prefix. With a queue:

1. A tick receives the queue's messages, which are then invisible to later ticks for an hour. The
   keys in the messages are hints.
2. The prefix is listed once an hour, and also if the queue had very many messages or did not
   answer. Otherwise only the hints are looked up. A file waits if the store has it and the ledger
   does not have it in its present state.
3. Messages whose files no longer wait are deleted.

A load does not rely on any of this: each load lists the prefix itself.

**Safety properties** (tests in `test_waiting_files.py`)
- Only files that are in the store are loaded. A message that is false, late, repeated or out of
  order adds nothing.
- A message is deleted when none of its files waits: each file is gone from the store, or the ledger
  has it, and no batch of its table is unfinished. A message that names no file for a table with a
  queue is also deleted. An unreadable message stays in the queue.
- The state is only in memory, so a new process first lists the prefix.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from lakehouse.core.declaration.landing import Landing
from lakehouse.core.declaration.table import Table
from lakehouse.core.errors import LakehouseError
from lakehouse.core.ingest.batches import LandedFile, Ledger
from lakehouse.core.ingest.choose_files import files_that_wait, may_be_loaded
from lakehouse.core.text import count_of
from lakehouse.engine.journal.planned_batches import landed_file, landed_files
from lakehouse.engine.lake import Lake
from lakehouse.engine.landing.queue import MOST_MESSAGES, LandingQueue, Message, created_keys
from lakehouse.engine.store import FairOrder, MountedStore, S3Store, TimeBudget

# The time between two sweeps (listings of a prefix), and until an undeleted message is received
# again. SQS loses no message, so a sweep is only needed for files without a message: the
# notification was not configured, or has expired. A sweep of 100,000 files takes 100 requests.
# Without a queue, every tick takes as many.
SWEEP_SECONDS = 3_600
# The share of a tick for all queues. Queues are served first, and must leave most of the tick to
# the tables.
_QUEUES_SHARE = 0.2
# The most messages that one tick deletes from each queue, because a tick has 60 seconds, and one
# request deletes ten.
MOST_DELETED = 1_000
# A message, and the pairs of a table key and a file name that the message names.
OpenMessage = tuple[Message, set[tuple[str, str]]]


@dataclass(slots=True)
class _Waiting:
    """The waiting files of one table by name; `None` marks a hint that was not looked up yet.

    `last_sweep` is the time (`now`) of the last sweep in seconds.
    """

    landing: Landing
    files: dict[str, LandedFile | None] = field(default_factory=dict[str, LandedFile | None])
    last_sweep: float = float("-inf")


@dataclass(slots=True)
class _Inbox:
    """A queue, its undeleted messages by id, and a sentence about the current tick."""

    queue: LandingQueue
    messages: dict[str, OpenMessage] = field(default_factory=dict[str, OpenMessage])
    unreadable: set[str] = field(default_factory=set[str])
    sentence: str = ""


class Discovery:
    """The waiting files of the tables with a queue, kept between the ticks of one process.

    Not thread-safe.
    """

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
            new_unreadable = list[str]()
            for message in received:
                is_readable = self._take_hints(inbox, message)
                if not is_readable and message.id not in inbox.unreadable:
                    new_unreadable.append(message.id)
            inbox.sentence = f"queue {inbox.queue.address}: {count_of(len(received), 'message')}"
            if new_unreadable:
                left = f"{count_of(len(new_unreadable), 'message')} not from S3"
                inbox.sentence += f"; left in the queue: {left}, first {new_unreadable[0]}"
            inbox.unreadable.update(new_unreadable)

    def waiting_files(
        self, table: Table, ledger: Ledger, *, refresh: bool, now: float
    ) -> Sequence[LandedFile]:
        """The files from which the next batch is chosen: all landed files, or those that wait.

        Without a queue, these are all landed files. Must not be called while a batch is unfinished:
        `settle` would delete messages of the batch's files. With `refresh`, all waiting files are
        looked up again, because a load may have taken or missed some of them.
        """
        waiting = self._waiting.get(table.key)
        if waiting is None:
            return landed_files(self._lake.store, table.landing)
        if now - waiting.last_sweep >= SWEEP_SECONDS:
            files = landed_files(self._lake.store, table.landing)
            waiting.last_sweep = now
        else:
            files = list[LandedFile]()
            hints = list[str]()
            for name, file in waiting.files.items():
                if refresh or file is None:
                    hints.append(f"{waiting.landing.prefix}{name}")
                else:
                    files.append(file)
            store = self._lake.store
            if isinstance(store, MountedStore):
                store = store.base
            assert isinstance(store, S3Store)  # only lakes on S3 have queues
            files += [landed_file(file, waiting.landing) for file in store.find(hints)]
        loadable = files_that_wait(files, ledger, table.landing)
        waiting.files = {file.name: file for file in loadable}
        return loadable

    def settle(self) -> Sequence[str]:
        """Deletes messages whose files no longer wait; returns a sentence per queue."""
        for inbox in self._inboxes.values():
            open_messages = inbox.messages.values()
            settled = [
                message
                for message, named_files in open_messages
                if not any(name in self._waiting[key].files for key, name in named_files)
            ]
            del settled[MOST_DELETED:]
            try:
                inbox.queue.delete(settled)
                if settled:
                    inbox.sentence += f", {len(settled)} deleted"
            except LakehouseError as error:
                inbox.sentence += f"; {error}"
            for message in settled:  # an undeleted message is received again
                del inbox.messages[message.id]
        return [inbox.sentence for inbox in self._inboxes.values()]

    def _take_hints(self, inbox: _Inbox, message: Message) -> bool:
        """Records the keys in a message as hints for all tables. False if it is not from S3."""
        keys = created_keys(message.body, self._lake.store.bucket)
        if keys is None:
            return False
        named_files = set[tuple[str, str]]()
        for table_key, waiting in self._waiting.items():
            prefix = f"{self._lake.store.prefix}{waiting.landing.prefix}"
            below = [
                key.removeprefix(prefix)
                for key in keys
                if key.startswith(prefix) and not key.endswith("/")
            ]
            names = [name for name in below if may_be_loaded(name, table_key)]
            waiting.files |= dict.fromkeys(names)  # a known file is looked up again, too
            named_files |= {(table_key, name) for name in names}
        inbox.messages[message.id] = message._replace(body=""), named_files
        return True

    def _sweep(self, inbox: _Inbox) -> None:
        """Makes `waiting_files` list the prefixes of a queue's tables: messages may be missing."""
        for waiting in self._waiting.values():
            if waiting.landing.queue == inbox.queue.address:
                waiting.last_sweep = float("-inf")
