"""An SQS queue that receives the event notifications of a bucket, and the keys in its messages.

boto3 finds the endpoint and the access keys by its own rules (the AWS_ variables, including
AWS_ENDPOINT_URL_SQS). The region is the lake's S3 region. The first request imports boto3.

Source: AWS, Amazon S3 user guide, "Event message structure" (keys are URL-encoded, with + for a
blank; the test event), "EventBridge event message structure" (keys are plain); Amazon SNS, "Message
formats" (the event is the text `Message`).
"""

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import unquote_plus

from lakehouse.core.errors import Refused, Transient
from lakehouse.core.s3_address import s3_region
from lakehouse.engine.store import TimeBudget
from lakehouse.engine.store.s3_client import answer_of
from lakehouse.engine.store.time_budget import ATTEMPTS

# The most messages per request. Source: AWS, ReceiveMessage and DeleteMessageBatch: "Valid values:
# 1 to 10", "up to 10 messages".
_AT_ONCE = 10
# The time that the first request may wait for a message (long polling). In this case, SQS queries
# all of its servers and misses no message.
_WAIT_SECONDS = 1
# The time after which `receive` sends no more requests, because a tick has other queues and tables
# to serve, even if SQS is slow.
_RECEIVE_SECONDS = 4
# `receive` sends no more requests once it has this many messages. So many messages take about 25
# requests, or a second or two. For more files, a listing is cheaper.
MOST_MESSAGES = 250
_MOST_KEY_BYTES = 1_024
_TRANSIENT_CODES = frozenset(
    {"OverLimit", "RequestThrottled", "ThrottlingException", "Throttling", "KmsThrottled"}
)


class Message(NamedTuple):
    """A received message. The `receipt` is needed to delete the message."""

    id: str
    receipt: str
    body: str


class LandingQueue:
    """A queue, addressed by its name or URL.

    Raises:
        Transient: from any method: SQS throttles requests or does not answer.
        Refused: from any method: there is no such queue, or a permission is missing.
    """

    def __init__(self, address: str, budget: TimeBudget | None = None) -> None:
        self.address = address
        self._budget = budget or TimeBudget()

    def receive(self, *, hidden_seconds: int) -> list[Message]:
        """Receives messages, up to about `MOST_MESSAGES`, within a few seconds.

        A message that is not deleted is received again after `hidden_seconds`.
        """
        stop = time.monotonic() + _RECEIVE_SECONDS
        messages: list[Message] = []
        request = {
            "QueueUrl": self._url,
            "MaxNumberOfMessages": _AT_ONCE,
            "VisibilityTimeout": hidden_seconds,
        }
        with self._translated("ReceiveMessage"):
            while len(messages) < MOST_MESSAGES and time.monotonic() < stop:
                wait_seconds = 0 if messages else _WAIT_SECONDS
                answer = self._client.receive_message(**request, WaitTimeSeconds=wait_seconds)
                received = answer.get("Messages")
                if not received:
                    break
                messages += [
                    Message(id=each["MessageId"], receipt=each["ReceiptHandle"], body=each["Body"])
                    for each in received
                ]
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
        with self._translated("GetQueueUrl"):
            return self._client.get_queue_url(QueueName=self.address)["QueueUrl"]

    @contextmanager
    def _translated(self, action: str) -> Iterator[None]:
        """Translates botocore's errors into errors of this program."""
        from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError

        where = f"queue {self.address}: {action}"
        try:
            yield
        except ClientError as error:
            code, status, _ = answer_of(error)
            message = f"{where}: SQS answers {code} ({status})"
            if code in _TRANSIENT_CODES or status >= 500 or status == 429:
                raise Transient(message) from error
            raise Refused(
                f"{message}. The queue must exist in the region in use, and grant sqs:{action}"
            ) from error
        except (ConnectionError, HTTPClientError) as error:
            raise Transient(f"{where}: {type(error).__name__}") from error
        except (BotoCoreError, ValueError) as error:
            # botocore raises a ValueError if the endpoint is not a URL.
            problem = type(error).__name__ if isinstance(error, ValueError) else str(error)
            raise Refused(
                f"{where}: {problem}. Check boto3's AWS_ variables for keys, region and "
                "AWS_ENDPOINT_URL_SQS"
            ) from error


def created_keys(body: str, bucket: str) -> tuple[str, ...] | None:
    """The keys of `bucket` that a message names as created; `None` if it is no event from S3.

    S3 sends events directly, through SNS, or through EventBridge.
    """
    try:
        return _created(json.loads(body), bucket)
    except (ValueError, RecursionError):
        return None


def _created(message: Any, bucket: str) -> tuple[str, ...] | None:
    match message:
        case {"Type": "Notification", "Message": str(event)}:
            return _created(json.loads(event), bucket)
        case {"Event": "s3:TestEvent"}:
            return ()
        case {
            "source": "aws.s3",
            "detail-type": kind,
            "detail": {"bucket": {"name": name}, "object": {"key": str(key)}},
        }:
            is_created = kind == "Object Created" and name == bucket and _is_key(key)
            return (key,) if is_created else ()
        case {"Records": [_, *_] as records}:
            keys = [_of_record(record, bucket) for record in records]
            return None if None in keys else tuple(key for key in keys if key)
        case _:
            return None


def _of_record(record: Any, bucket: str) -> str | None:
    """The created key; empty for any other S3 event, `None` if the record is not an S3 event."""
    match record:
        case {
            "eventSource": str(source),
            "eventName": str(kind),
            "s3": {"bucket": {"name": name}, "object": {"key": str(key)}},
        }:
            if not source.endswith(":s3"):
                return None
            decoded_key = unquote_plus(key)
            is_created = kind.removeprefix("s3:").startswith("ObjectCreated:")
            return decoded_key if is_created and name == bucket and _is_key(decoded_key) else ""
        case _:
            return None


def _is_key(text: str) -> bool:
    """Whether this can be an S3 key. Source: AWS, S3 user guide, "Naming Amazon S3 objects"."""
    try:
        return len(text.encode()) <= _MOST_KEY_BYTES
    except UnicodeEncodeError:
        return False
