"""Finds landed files that wait to be loaded, and those that would expire before.

Loaded files stay where they landed, so a bucket usually has a rule that ends them. The same rule
also ends files that still wait for a load, and files that were set aside.

boto3 finds the endpoint and the access keys by its own rules (the AWS_ variables, including
AWS_ENDPOINT_URL_SQS). The region is the lake's S3 region. The first request imports boto3.

Source: AWS, Amazon S3 user guide, "Event message structure" (keys are URL-encoded, with + for a
blank), "EventBridge event message structure" (keys are plain); Amazon SNS, "Message formats" (the
event is the text `Message`).

Without a queue, each tick of the sensor lists the prefix. With a queue, a tick receives the queue's
messages, keeps the keys in them as hints, and deletes the messages. The prefix is listed by the
first tick of a process, once an hour, and if the queue had very many messages or did not answer.
Otherwise only the hints are looked up. A file waits if the store has it and the ledger does not
have it in its present state.

A load does not rely on any of this: each load lists the prefix itself. So a message that is false,
lost, late or repeated adds and loses nothing (`test_waiting_files.py`).
"""

import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any
from urllib.parse import unquote_plus

from lakehouse.base.errors import Refused, Transient
from lakehouse.base.settings import s3_region
from lakehouse.base.stored_objects import LifecycleRule
from lakehouse.base.text import DAY_MS, count_of, printable
from lakehouse.declare.landing import Landing
from lakehouse.declare.table import Table
from lakehouse.lake.lake import Lake
from lakehouse.land.ledger import landed_file, landed_files
from lakehouse.land.plan.batches import LandedFile, Ledger
from lakehouse.land.plan.choose_files import files_that_wait, may_be_loaded
from lakehouse.store import FairOrder, MountedStore, S3Store, TimeBudget
from lakehouse.store.interface import ATTEMPTS
from lakehouse.store.s3 import read_lifecycle, s3_place

# A file counts if its rule deletes it within this time. S3 applies rules once a day.
_AHEAD_MS = 3 * DAY_MS


def expiring_sentence(
    lake: Lake, table: str, prefix: str, waiting: Sequence[LandedFile], *, now_ms: int
) -> str | None:
    """Names each rule that deletes files below `prefix` that no batch has loaded; `None` if none.

    `waiting` are these files. A rule counts if it deletes one of them within three days. A rule
    with a tag does not count, because it is unknown which files carry the tag.
    """
    place = s3_place(lake.store, prefix.rstrip("/"))
    if place is None or not waiting:
        return None
    store, folder = place
    try:
        rules = read_lifecycle(store)
    except Refused as refused:
        return f"it is unknown whether a lifecycle rule deletes waiting files: {refused}"
    sentences = list[str]()
    for rule in rules:
        expiring = [
            file
            for file in waiting
            if not rule.tags
            and f"{store.prefix}{folder}/{file.name}".startswith(rule.prefix)
            and _expires_ms(rule, file) - now_ms <= _AHEAD_MS
        ]
        if expiring:
            count = count_of(len(expiring), "file")
            verb = "is" if len(expiring) == 1 else "are"
            sentences.append(
                f"lifecycle rule {printable(rule.name)!r} deletes {count} that {verb} not loaded "
                f"within three days (for example {printable(expiring[0].name)}). Either run "
                f"lakehouse materialize {table}, or disable the rule"
            )
    return "; ".join(sentences) or None


def _expires_ms(rule: LifecycleRule, file: LandedFile) -> float:
    """When the rule deletes the file; infinite if it does not delete current objects."""
    for action in rule.actions:
        if not action.storage_class:
            word, value, *_ = action.when.split()
            if word == "after":  # `after 30 days`
                return file.modified_ms + int(value) * DAY_MS
            return datetime.fromisoformat(value).replace(tzinfo=UTC).timestamp() * 1000
    return float("inf")


# The most messages per request. Source: AWS, ReceiveMessage and DeleteMessageBatch: "Valid values:
# 1 to 10", "up to 10 messages".
_AT_ONCE = 10
# The time that the first request may wait for a message (long polling). In this case, SQS queries
# all of its servers and misses no message.
_WAIT_SECONDS = 1
# `receive` ends after this time or with this many messages, because a tick has other queues and
# tables to serve. For more files, a listing is cheaper.
_RECEIVE_SECONDS = 4
MOST_MESSAGES = 250


class LandingQueue:
    """A queue, addressed by its name or URL. Any method raises `Transient` if a request fails."""

    def __init__(self, address: str, budget: TimeBudget) -> None:
        self.address = address
        self._budget = budget

    def receive(self) -> list[Any]:
        """Receives messages of SQS, up to about `MOST_MESSAGES`, within a few seconds."""
        stop = time.monotonic() + _RECEIVE_SECONDS
        messages = list[Any]()
        with self._translated("ReceiveMessage"):
            while len(messages) < MOST_MESSAGES and time.monotonic() < stop:
                answer = self._client.receive_message(
                    QueueUrl=self._url,
                    MaxNumberOfMessages=_AT_ONCE,
                    WaitTimeSeconds=0 if messages else _WAIT_SECONDS,
                )
                received = answer.get("Messages")
                if not received:
                    break
                messages += received
        return messages

    def delete(self, messages: Sequence[Any]) -> None:
        """Deletes messages. A message that SQS does not delete is received again."""
        with self._translated("DeleteMessage"):
            for start in range(0, len(messages), _AT_ONCE):
                portion = enumerate(messages[start : start + _AT_ONCE])
                entries = [
                    {"Id": str(index), "ReceiptHandle": each["ReceiptHandle"]}
                    for index, each in portion
                ]
                self._client.delete_message_batch(QueueUrl=self._url, Entries=entries)

    @cached_property
    def _client(self) -> Any:
        import boto3
        from botocore.config import Config

        session = boto3.Session(
            region_name=s3_region(os.environ), profile_name=os.environ.get("AWS_PROFILE") or None
        )
        config = Config(
            retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
            connect_timeout=self._budget.connect_seconds,
            read_timeout=self._budget.read_seconds,
        )
        client = session.client("sqs", config=config)
        client.meta.events.register("before-send.sqs", self._budget.check)
        return client

    @cached_property
    def _url(self) -> str:
        if "://" in self.address:
            return self.address
        return self._client.get_queue_url(QueueName=self.address)["QueueUrl"]

    @contextmanager
    def _translated(self, action: str) -> Iterator[None]:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        # botocore raises a ValueError if the endpoint is not a URL.
        except (BotoCoreError, ClientError, ValueError) as error:
            raise Transient(
                f"queue {self.address}: {error}. The queue must exist in the region in use, and "
                f"grant sqs:{action}"
            ) from error


def created_keys(body: str, bucket: str) -> set[str]:
    """The keys of `bucket` that a message may name, whether or not it encodes them."""
    try:
        keys = {*_keys(json.loads(body), bucket)}
    except (ValueError, RecursionError):
        return set()
    return {key for key in keys if len(key.encode("utf-8", "ignore").decode()) == len(key) <= 1_024}


def _keys(event: Any, bucket: str) -> Iterator[str]:
    match event:
        case {"Message": str(text)}:  # SNS
            yield from _keys(json.loads(text), bucket)
        case {"bucket": {"name": name}, "object": {"key": str(key)}}:
            if name == bucket:
                yield from (key, unquote_plus(key))
        case dict() | list():
            members: Any = event.values() if isinstance(event, dict) else event
            for member in members:
                yield from _keys(member, bucket)
        case _:
            pass


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
            keys = created_keys(message["Body"], self._lake.store.bucket)
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
