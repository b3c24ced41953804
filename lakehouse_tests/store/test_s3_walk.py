"""A bucket listed by several threads: every key once, whatever its folders, in few requests, and never for ever."""

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto.core import DEFAULT_ACCOUNT_ID as ACCOUNT
from moto.s3.models import s3_backends

from lakehouse.base.errors import Refused
from lakehouse.store.s3 import find_keys, walk_keys

SHAPES = {
    "nothing": [],
    "one": ["x"],
    "flat": [f"t/{number:03}" for number in range(40)],
    "folders": [f"t/d={number % 12:02}/{number:03}" for number in range(60)],
    "one folder inside another": [
        "/".join("abcdefgh"[: number % 8 + 1]) + f"/{number}" for number in range(50)
    ],
    "markers": [f"t/{number}/" for number in range(20)]
    + [f"t/{number}/x" for number in range(20)]
    + ["t/", "t0", "t-/x", "t!/x"],
    "odd": [
        f"t/{sign}/{number}"
        for sign in ("ä", "😀", "a b", "%2F", "+", "~", "!", "\uffee")
        for number in range(6)
    ],
}


def keys(walk: Iterator[Any]) -> list[str]:
    return sorted(entry["Key"] for entry in walk)


def stored(bucket: str, names: list[str]) -> tuple[Any, Counter[str]]:
    """A client of a bucket with these keys, and the requests that it will have sent by what they ask for."""
    for name in names:
        s3_backends[ACCOUNT]["aws"].put_object(bucket, name, b"")
    client, requests = boto3.client("s3"), Counter[str]()
    client.meta.events.register(
        "provide-client-params.s3.ListObjectsV2",
        lambda params, **_: requests.update(["folders" if "Delimiter" in params else "keys"]),
    )
    return client, requests


@pytest.mark.parametrize("shape", SHAPES)
def test_every_key_is_listed_once(bucket: str, shape: str) -> None:
    client, _ = stored(bucket, [*SHAPES[shape], "other/x"])
    assert keys(walk_keys(client, bucket, "", page_keys=3)) == sorted([*SHAPES[shape], "other/x"])
    assert keys(walk_keys(client, bucket, "t/", page_keys=3)) == sorted(
        key for key in SHAPES[shape] if key.startswith("t/")
    )


@pytest.mark.long
def test_any_tree_is_listed_once(bucket: str) -> None:
    chance = random.Random(7)
    names = sorted(
        {
            "/".join(chance.choices("abcd", k=chance.randint(1, 5))) + f"/{chance.randint(0, 99)}"
            for _ in range(300)
        }
    )
    client, _ = stored(bucket, names)
    for threads in (1, 2, 5, 16):
        assert keys(walk_keys(client, bucket, "", threads=threads, page_keys=10)) == names


@pytest.mark.long
def test_many_folders_of_few_files_cost_no_request_each(bucket: str) -> None:
    client, requests = stored(
        bucket,
        [f"bronze/t/day={number % 200:03}/{number:04}" for number in range(2_000)] + ["landing/x"],
    )
    assert len(keys(walk_keys(client, bucket, "", page_keys=100))) == 2_001
    assert requests["keys"] <= 20 + 3 * 16 and requests["folders"] <= 2 * 16


def test_a_small_lake_costs_one_request(bucket: str) -> None:
    client, requests = stored(bucket, [f"bronze/t/day={number}/x" for number in range(100)])
    assert len(keys(walk_keys(client, bucket, ""))) == 100
    assert requests == {"keys": 1}


@pytest.mark.parametrize("answer", [["b", "c"], ["d", "a"]])
def test_a_server_that_lists_in_no_order_is_refused(answer: list[str]) -> None:
    class Odd:
        def list_objects_v2(self, **_: Any) -> Any:
            return {"Contents": [{"Key": key} for key in answer], "IsTruncated": True}

    with pytest.raises(Refused, match="lists keys in order"):
        keys(walk_keys(Odd(), "b", ""))


@pytest.mark.parametrize("shape", [*SHAPES])
def test_named_keys_are_found_in_no_more_requests_than_names_or_pages(
    bucket: str, shape: str
) -> None:
    client, asked = stored(bucket, SHAPES[shape])
    there = SHAPES[shape][:: max(1, len(SHAPES[shape]) // 7)]
    found = find_keys(
        client, bucket, "", [*there, *there[:2], "t/not there", "t/\ue000", "zz", "\x01"]
    )
    assert sorted(entry["Key"] for entry in found) == sorted(there)
    assert asked["keys"] <= 2  # all keys are on one page
    assert find_keys(client, bucket, "", []) == []


def test_keys_on_far_pages_are_found_one_page_each_and_none_is_passed_over(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "3")
    keys = [f"t/{number}" for number in range(1, 40)]
    client, asked = stored(bucket, keys)
    for wanted in (["t/1", "t/30", "t/9"], keys, ["t/39"], ["t/10", "t/11", "t/12"]):
        asked.clear()
        assert sorted(entry["Key"] for entry in find_keys(client, bucket, "t/", wanted)) == sorted(
            wanted
        )
        assert asked["keys"] <= 1 + len(keys) // 3
