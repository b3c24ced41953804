"""A bucket is listed page by page: every key once, and named keys in few requests."""

from collections import Counter
from typing import Any

import boto3
import pytest
from moto.core import DEFAULT_ACCOUNT_ID as ACCOUNT
from moto.s3.models import s3_backends

from lakehouse.store.s3 import S3Store

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
def test_every_key_is_listed_once(bucket: str, shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "3")
    client, requests = stored(bucket, [*SHAPES[shape], "other/x"])
    store = S3Store(bucket, "", lambda **_: client)
    keys = [each.key for each in store.walk("")]
    assert sorted(keys) == sorted([*SHAPES[shape], "other/x"])
    assert requests == {"keys": len(keys) // 3 + (len(keys) % 3 > 0)}
    assert sorted(each.key for each in store.walk("t")) == sorted(
        key for key in SHAPES[shape] if key.startswith("t/")
    )
