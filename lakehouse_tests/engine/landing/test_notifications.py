"""What is read from the messages of a queue, and what is not."""

import json
from typing import Any

import pytest

from lakehouse.engine.landing.queue import created_keys


def record(
    key: str, *, bucket: str = "lake", kind: str = "ObjectCreated:Put", source: str = "aws:s3"
) -> dict[str, Any]:
    return {
        "eventSource": source,
        "eventName": kind,
        "s3": {"bucket": {"name": bucket}, "object": {"key": key, "size": 7}},
    }


def records(*found: Any) -> str:
    return json.dumps({"Records": found})


def bridged(key: str, *, bucket: str = "lake", kind: str = "Object Created") -> str:
    return json.dumps(
        {
            "source": "aws.s3",
            "detail-type": kind,
            "detail": {"bucket": {"name": bucket}, "object": {"key": key}},
        }
    )


def published(body: str) -> str:
    return json.dumps(
        {"Type": "Notification", "TopicArn": "arn:aws:sns:us-east-1:1:t", "Message": body}
    )


@pytest.mark.parametrize(
    ("body", "keys"),
    [
        (records(record("landing/a.json")), ("landing/a.json",)),
        (records(record("landing/d%3D1/a+b%2Bc%C3%BC.json")), ("landing/d=1/a b+cü.json",)),
        (
            records(record("a"), record("b", kind="ObjectCreated:CompleteMultipartUpload")),
            ("a", "b"),
        ),
        (records(record("a", kind="s3:ObjectCreated:Copy", source="minio:s3")), ("a",)),
        (
            records(
                record("a", kind="ObjectRemoved:Delete"), record("b", bucket="other"), record("c")
            ),
            ("c",),
        ),
        (records(record("a", bucket="other")), ()),
        (json.dumps({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "lake"}), ()),
        (published(records(record("a%2B"))), ("a+",)),
        (bridged("a b+%2B"), ("a b+%2B",)),
        (bridged("a", kind="Object Deleted"), ()),
        (bridged("a", bucket="other"), ()),
        (bridged("no UTF-8: \ud800"), ()),
        (records(record("no UTF-8: \ud800"), record("x" * 1_025), record("ü" * 512)), ("ü" * 512,)),
    ],
)
def test_the_keys_that_were_created_in_the_bucket_are_read_once_decoded(
    body: str, keys: tuple[str, ...]
) -> None:
    assert created_keys(body, "lake") == keys


@pytest.mark.parametrize(
    "body",
    [
        *("", "nope", "[1]", "{}", '"text"', "[" * 100_000, '{"Records": []}', '{"Records": [7]}'),
        records(record("a"), {"eventSource": "aws:ses"}),
        records(record("a", source="aws:ses")),
        records({**record("a"), "s3": {"bucket": {"name": "lake"}, "object": {"key": 7}}}),
        published("nope"),
        published(published("{}")),
        json.dumps(
            {
                "source": "aws.ec2",
                "detail-type": "EC2 Instance State-change Notification",
                "detail": {},
            }
        ),
    ],
)
def test_what_is_no_message_of_s3_is_unreadable(body: str) -> None:
    assert created_keys(body, "lake") is None
