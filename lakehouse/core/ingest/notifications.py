"""Reads the keys of newly created objects from a message of a queue.

Source: AWS, Amazon S3 user guide, "Event message structure" (keys are URL-encoded, with + for a
blank; the test event), "EventBridge event message structure" (keys are plain); Amazon SNS, "Message
formats" (the event is the text `Message`).
"""

import json
from typing import Any
from urllib.parse import unquote_plus

_MOST_KEY_BYTES = 1_024


def created_keys(body: str, bucket: str) -> tuple[str, ...] | None:
    """The keys of `bucket` that a message names as created.

    `None` if it is not an event of S3, sent directly, by SNS or by EventBridge.
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
            return (key,) if kind == "Object Created" and name == bucket and _is_key(key) else ()
        case {"Records": [_, *_] as records}:
            found = [_of_record(record, bucket) for record in records]
            return None if None in found else tuple(key for key in found if key)
        case _:
            return None


def _of_record(record: Any, bucket: str) -> str | None:
    """The created key; empty for another event of S3, `None` if it is not an event of S3."""
    match record:
        case {
            "eventSource": str(source),
            "eventName": str(kind),
            "s3": {"bucket": {"name": name}, "object": {"key": str(key)}},
        }:
            if not source.endswith(":s3"):
                return None
            plain = unquote_plus(key)
            return (
                plain
                if kind.removeprefix("s3:").startswith("ObjectCreated:")
                and name == bucket
                and _is_key(plain)
                else ""
            )
        case _:
            return None


def _is_key(text: str) -> bool:
    """Whether this can be a key. Source: AWS, S3 user guide, "Naming Amazon S3 objects"."""
    try:
        return len(text.encode()) <= _MOST_KEY_BYTES
    except UnicodeEncodeError:
        return False
