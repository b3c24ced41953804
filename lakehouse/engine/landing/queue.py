"""An SQS queue that receives the event notifications of a bucket, and the keys in its messages.

boto3 finds the endpoint and the access keys by its own rules (the AWS_ variables, including
AWS_ENDPOINT_URL_SQS). The region is the lake's S3 region. The first request imports boto3.

Source: AWS, Amazon S3 user guide, "Event message structure" (keys are URL-encoded, with + for a
blank), "EventBridge event message structure" (keys are plain); Amazon SNS, "Message formats" (the
event is the text `Message`).
"""

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import unquote_plus

from lakehouse.core.errors import Transient
from lakehouse.core.s3_address import s3_region
from lakehouse.engine.store import TimeBudget
from lakehouse.engine.store.time_budget import ATTEMPTS

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


class Message(NamedTuple):
    """A received message. The `receipt` is needed to delete the message."""

    receipt: str
    body: str


class LandingQueue:
    """A queue, addressed by its name or URL. Any method raises `Transient` if a request fails."""

    def __init__(self, address: str, budget: TimeBudget) -> None:
        self.address = address
        self._budget = budget

    def receive(self) -> list[Message]:
        """Receives messages, up to about `MOST_MESSAGES`, within a few seconds."""
        stop = time.monotonic() + _RECEIVE_SECONDS
        messages = list[Message]()
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
                messages += [Message(each["ReceiptHandle"], each["Body"]) for each in received]
        return messages

    def delete(self, messages: Sequence[Message]) -> None:
        """Deletes messages. A message that SQS does not delete is received again."""
        with self._translated("DeleteMessage"):
            for start in range(0, len(messages), _AT_ONCE):
                portion = enumerate(messages[start : start + _AT_ONCE])
                entries = [
                    {"Id": str(index), "ReceiptHandle": each.receipt} for index, each in portion
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
