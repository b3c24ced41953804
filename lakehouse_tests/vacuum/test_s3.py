"""Faults of S3 while a vacuum deletes, planted in the server: what went is known, what did not is told by key, the next run heals.

No Spark: Delta's answer is taken to be our plan.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import uuid4

import boto3
import pytest
from botocore.config import Config
from moto.s3.models import s3_backends
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from lakehouse.base.settings import parse_settings
from lakehouse.lake.lake import Lake, open_lake
from lakehouse.store import S3Store
from lakehouse.store import s3 as s3_store
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.support.faults import (
    KEY,
    LONG_AGO,
    PAST,
    carried_out,
    files,
    paths,
    planned,
    report,
    story_of,
)
from lakehouse_tests.support.vacuums import deleted

type_of_fault = Callable[[Any, dict[str, Any], Any], Iterable[bytes]]


class FaultyS3:
    """A WSGI application before moto's: the next `times` requests to delete, or of another `method`, meet the `fault`."""

    def __init__(self, app: Any) -> None:
        self.app, self.times, self.method = app, 0, "POST"
        self.fault: type_of_fault = _slow_down

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if self.times == 0 or environ["REQUEST_METHOD"] != self.method:
            return self.app(environ, start_response)
        self.times -= 1
        return self.fault(self.app, environ, start_response)


@pytest.fixture(scope="module")
def s3() -> Iterator[FaultyS3]:
    """A server of its own, in which faults can be planted; the environment leads boto3 there."""
    app = FaultyS3(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "test")
        patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.port}")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_MAX_ATTEMPTS", "2")
        patch.setattr(s3_store, "_PAUSES_SECONDS", (0.0,) * 5)
        yield app
    server.shutdown()
    thread.join()


@pytest.fixture
def in_bucket(s3: FaultyS3, tmp_path: Path) -> Iterator[Lake]:
    """The same lake in a bucket of its own, everything in it of long ago, with a report."""
    bucket = f"lake-{uuid4().hex}"
    boto3.client("s3").create_bucket(Bucket=bucket)
    environ = {"LAKEHOUSE_REPLAY": "off", "LAKEHOUSE_ROOT": f"s3://{bucket}/some/lake"}
    lake = open_lake(parse_settings(environ, base=tmp_path))
    story_of(lake)
    make_old(lake)
    report(lake)
    yield lake
    s3.times, s3.method = 0, "POST"


def make_old(lake: Lake) -> None:
    for key in s3_backends["123456789012"]["aws"].buckets[lake.store.bucket].keys.values():
        key.last_modified = datetime.fromtimestamp(LONG_AGO / 1_000, tz=UTC).replace(tzinfo=None)


def _answer(start_response: Any, status: str, text: str) -> Iterable[bytes]:
    start_response(status, [("Content-Type", "application/xml")])
    return [text.encode()]


def _slow_down(_app: Any, _environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    """The whole request is refused for now."""
    error = "<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"
    return _answer(start_response, "503 Slow Down", error)


def _lost(app: Any, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    """It is done, and the answer is lost on its way."""
    list(app(environ, lambda *_: None))
    error = "<Error><Code>InternalError</Code><Message>lost</Message></Error>"
    return _answer(start_response, "500 Internal Server Error", error)


def _late(app: Any, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    """It is done, and the answer comes when nobody waits for it any more."""
    answer = list(app(environ, start_response))
    time.sleep(0.4)
    return answer


def _not_the_orphan(code: str) -> type_of_fault:
    """All but one key are deleted; why, is told inside an answer that says 200."""

    def fault(app: Any, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
        kept = b"<Object><Key>some/lake/bronze/t/d=1/orphan</Key></Object>"
        rest = body.replace(kept, b"")
        environ |= {"wsgi.input": BytesIO(rest), "CONTENT_LENGTH": str(len(rest))}
        if b"<Object>" in rest:
            list(app(environ, lambda *_: None))
        error = f"<Error><Key>some/lake/bronze/t/d=1/orphan</Key><Code>{code}</Code></Error>"
        told = error if kept in body else ""
        return _answer(start_response, "200 OK", f"<DeleteResult>{told}</DeleteResult>")

    return fault


REFUSED = {
    "d=1/gone": "SlowDown",
    "d=1/orphan": "SlowDown",
    "error": "Transient: .* S3 answers SlowDown .*; try again",
}
NO_SLOW, NO_RIGHT = _not_the_orphan("SlowDown"), _not_the_orphan("AccessDenied")
SLOW = (NO_SLOW, -1, ["d=1/gone"], {"d=1/orphan": "SlowDown"})


@pytest.mark.parametrize(
    ("fault", "times", "gone", "failed"),
    [
        (_slow_down, 3, PAST, {}),
        (_slow_down, -1, [], REFUSED),
        (_lost, 1, PAST, {}),
        pytest.param(_lost, -1, PAST, {}, marks=pytest.mark.long),
        pytest.param(_late, 1, PAST, {}, marks=pytest.mark.long),
        (NO_RIGHT, -1, ["d=1/gone"], {"d=1/orphan": "AccessDenied"}),
        pytest.param(NO_SLOW, 3, PAST, {}, marks=pytest.mark.long),
        pytest.param(*SLOW, marks=pytest.mark.long),
    ],
)
def test_a_fault_of_s3_is_tried_again_or_told_by_key_and_the_next_run_heals(
    s3: FaultyS3,
    in_bucket: Lake,
    fault: type_of_fault,
    times: int,
    gone: list[str],
    failed: Mapping[str, str],
) -> None:
    lake = in_bucket
    if fault is _late:
        client = boto3.client("s3", config=Config(read_timeout=0.2, retries={"mode": "standard"}))
        lake = replace(lake, store=S3Store(lake.store.bucket, lake.store.prefix, lambda: client))
    s3.fault, s3.times = fault, times
    found, work = carried_out(lake, planned(lake))
    assert found == {*gone}
    assert work.failed.keys() == failed.keys()
    assert all(re.search(why, work.failed[name]) for name, why in failed.items())
    assert work.deleted_files == (0 if "error" in failed else len(gone))
    s3.times = 0
    carried_out(lake, planned(lake))
    assert files(lake) == {"d=1/live", "d=2/live"}


@pytest.mark.parametrize(
    "mode", [pytest.param("LITE", marks=pytest.mark.long), "INVENTORY", "FULL"]
)
def test_files_gone_before_make_an_unlisted_count_an_upper_bound(
    in_bucket: Lake, mode: str
) -> None:
    """One is gone before the vacuum: S3 calls its key deleted. A name that may be used twice is asked for, and not counted."""
    once = "d=1/part-00000-0b4e1d6c-4d0c-4a3f-9a58-0123456789ab.c000.snappy.parquet"
    story = LogBuilder(in_bucket.store, KEY).create(partition_by=["d"])
    story.append([("d=1/live", 10), ("d=2/live", 20), ("d=1/gone", 30)])
    story.append([(once, 3)]).delete(["d=1/gone"]).delete([once])
    store = in_bucket.store
    store.put(f"{KEY}/{once}", b"123")
    make_old(in_bucket)
    report(in_bucket)
    found = planned(in_bucket, mode)
    assert {"d=1/gone", once} <= {*paths(found)}
    names = [f"{KEY}/d=1/gone", f"{KEY}/{once}"]
    _, work = carried_out(in_bucket, found, meanwhile=lambda: store.delete(names))
    outcome = work.record(found, has_ended_well=True)
    assert deleted(outcome) == found.file_count - 1


def test_markers_of_folders_are_no_files(in_bucket: Lake) -> None:
    keys = [f"{KEY}/d=1_$folder$", f"{KEY}/d=1/", "landing/orders_$folder$", "landing/x_$folder$"]
    bucket = boto3.resource("s3").Bucket(in_bucket.store.bucket)
    for key in keys:
        bucket.put_object(Key=f"some/lake/{key}", Body=b"1" if "/x" in key else b"")
    found = {each.key.removeprefix("some/lake/"): each.is_dir for each in in_bucket.store.walk("")}
    assert [found[key] for key in keys] == [True, True, True, False]
    assert [file.name for file in in_bucket.store.list("landing")] == ["landing/x_$folder$"]
    assert carried_out(in_bucket, planned(in_bucket, "FULL"))[0] == {*PAST}


def test_keys_that_name_no_folder_stop_no_vacuum(in_bucket: Lake) -> None:
    bucket = boto3.resource("s3").Bucket(in_bucket.store.bucket)
    for key in ("/x/y", "./x/y", "../x/y", "silver//y", "silver/../y"):
        bucket.put_object(Key=f"some/lake/{key}", Body=b"1")
    assert carried_out(in_bucket, planned(in_bucket, "FULL"))[0] == {*PAST}


def test_a_silent_storage_stops_it_before_anything_goes(s3: FaultyS3, in_bucket: Lake) -> None:
    def tell_nothing() -> None:
        s3.fault, s3.times, s3.method = _slow_down, -1, "HEAD"

    gone, work = carried_out(in_bucket, planned(in_bucket), meanwhile=tell_nothing)
    assert gone == set() and work.failed.keys() == {"error", *PAST}
    assert work.failed["error"].startswith("Transient")
    s3.times = 0
    carried_out(in_bucket, planned(in_bucket))
    assert files(in_bucket) == {"d=1/live", "d=2/live"}
