"""What is read from the messages of a queue, and what is not."""

import json
from typing import Any

import pytest

from lakehouse.land.waiting_files import created_keys


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
    detail = {"bucket": {"name": bucket}, "object": {"key": key}}
    return json.dumps({"source": "aws.s3", "detail-type": kind, "detail": detail})


def published(body: str) -> str:
    topic = "arn:aws:sns:us-east-1:1:t"
    return json.dumps({"Type": "Notification", "TopicArn": topic, "Message": body})


@pytest.mark.parametrize(
    ("body", "keys"),
    [
        (records(record("landing/a.json")), {"landing/a.json"}),
        (
            records(record("landing/d%3D1/a+b%2Bc%C3%BC.json")),
            {"landing/d=1/a b+cü.json", "landing/d%3D1/a+b%2Bc%C3%BC.json"},
        ),
        (
            records(record("a"), record("b", kind="ObjectCreated:Copy", source="minio:s3")),
            {"a", "b"},
        ),
        (records(record("b", bucket="other"), record("c")), {"c"}),
        (json.dumps({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "lake"}), set()),
        (published(records(record("a%2B"))), {"a+", "a%2B"}),
        (bridged("a b+%2B"), {"a b+%2B", "a b +"}),
        (bridged("a", bucket="other"), set()),
        (bridged("no UTF-8: \ud800"), set()),
        (records(record("no UTF-8: \ud800"), record("x" * 1_025), record("ü")), {"ü"}),
    ],
)
def test_the_keys_in_the_bucket_are_read_as_they_are_and_decoded(body: str, keys: set[str]) -> None:
    assert created_keys(body, "lake") == keys


@pytest.mark.parametrize(
    "body",
    [
        *("", "nope", "[1]", "{}", '"text"', "[" * 100_000, '{"Records": []}', '{"Records": [7]}'),
        records({**record("a"), "s3": {"bucket": {"name": "lake"}, "object": {"key": 7}}}),
        published("nope"),
        published(published("{}")),
    ],
)
def test_what_is_no_message_of_s3_names_no_key(body: str) -> None:
    assert created_keys(body, "lake") == set()
