"""moto's S3 server for benchmarks: counts requests by kind, and creates an old table in seconds.

`python -m benchmarks.s3_server PORT`. It also answers `/-/seed?bucket=…&key=…&files=…&folders=…`,
`/-/requests` (counts since the last call) and `/-/latency?ms=…` (delay of each answer). Requests of the
Python client also count as `ours …`, all others as `spark …`.

moto's own LIST visits the whole bucket for each page, which would make Delta look slow. Here names are
sorted, so that a page costs only what it contains, as on S3. Likewise, a HEAD of an absent key costs
little.
"""

import json
import os
import subprocess
import sys
import time
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from io import BytesIO
from random import Random
from threading import Lock
from typing import Any
from urllib.error import URLError
from urllib.parse import parse_qs
from urllib.request import urlopen
from uuid import UUID

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.s3.models import FakeBucket, S3Backend, s3_backends
from moto.utilities.utils import get_partition
from werkzeug.serving import WSGIRequestHandler, run_simple

from lakehouse_tests.conftest import free_port
from lakehouse_tests.log_builder import LogBuilder

PREFIX, KEY = "lake", "bronze/big"
ACCOUNT, REGION = "123456789012", "us-east-1"
DEAD_SHARE, ORPHAN_SHARE = 0.16, 0.04
_LAST = "\U0010ffff"
_OLD = timedelta(days=60)


@contextmanager
def served() -> Iterator[str]:
    """Starts a server in its own process; boto3 and the JVM find it in the environment."""
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    os.environ |= {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
    }
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.s3_server", str(port)], stderr=subprocess.DEVNULL
    ) as process:
        try:
            while True:
                try:
                    ask(endpoint, "requests")
                    break
                except URLError:
                    time.sleep(0.1)  # until it answers
            yield endpoint
        finally:
            process.kill()  # it holds nothing, and a parent that ignores SIGTERM has it ignored here, too


def ask(endpoint: str, what: str) -> dict[str, int]:
    """The server's answer below `/-/`."""
    with urlopen(f"{endpoint}/-/{what}") as answer:  # noqa: S310  # our own server
        return json.load(answer)


def names_of(files: int, folders: int) -> tuple[list[str], list[str], list[str]]:
    """Names of live, removed and orphaned files; every folder has some of each."""
    random = Random(files)
    names = [f"day={number % folders}/{_name(random)}" for number in range(files)]
    dead, orphans = round(files * DEAD_SHARE), round(files * ORPHAN_SHARE)
    return names[dead + orphans :], names[:dead], names[dead : dead + orphans]


def _name(random: Random) -> str:
    """As Spark names a file."""
    return f"part-{random.randrange(200):05}-{UUID(int=random.getrandbits(128), version=4)}.c000.snappy.parquet"


class Counting:
    """A WSGI application that counts requests."""

    def __init__(self, app: Callable[..., Iterable[bytes]]) -> None:
        self._app, self._lock, self._counts, self._latency_seconds = (
            app,
            Lock(),
            Counter[str](),
            0.0,
        )

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        path, query = (
            environ["PATH_INFO"],
            parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True),
        )
        if path.startswith("/-/"):
            start_response("200 OK", [("Content-Type", "application/json")])
            return [
                json.dumps(
                    self._answer(path, {name: values[0] for name, values in query.items()})
                ).encode()
            ]
        with self._lock:
            self._counts.update(_kinds(environ, query))
        time.sleep(self._latency_seconds)  # the answer of a far server is what is measured
        if environ["REQUEST_METHOD"] == "HEAD" and _is_absent(path):
            start_response("404 Not Found", [("Content-Length", "0")])
            return []
        return self._app(environ, start_response)

    def _answer(self, path: str, query: dict[str, str]) -> Any:
        if path == "/-/seed":
            return seed(
                query["bucket"],
                query.get("key", KEY),
                files=int(query["files"]),
                folders=int(query["folders"]),
            )
        if path == "/-/latency":
            self._latency_seconds = float(query["ms"]) / 1_000
            return query
        with self._lock:
            counts, self._counts = self._counts, Counter()
        return counts


def _is_absent(path: str) -> bool:
    """Whether a bucket exists that lacks the key; `path` is `/bucket/key`."""
    _, name, *key = path.split("/", 2)
    bucket = s3_backends[ACCOUNT][get_partition(REGION)].buckets.get(name)
    return bucket is not None and any(key) and key[0] not in bucket.keys


def seed(bucket: str, key: str, *, files: int, folders: int) -> int:
    """Creates a bucket with a table `key`, older than any retention; returns the number of keys."""
    backend = s3_backends[ACCOUNT][get_partition(REGION)]
    if bucket not in backend.buckets:
        backend.create_bucket(bucket, REGION)
    live, dead, orphans = names_of(files, folders)
    file_history = LogBuilder(key=key).create(partition_by=["day"])
    file_history.append([(name, 1) for name in [*live, *dead]]).delete(dead).checkpoint()
    objects = {f"{key}/{name}": b"x" for name in [*live, *dead, *orphans]}
    objects |= {
        file.name: file_history.store.read(file.name) for file in file_history.store.list("")
    }
    for name, data in objects.items():
        stored = backend.put_object(bucket, f"{PREFIX}/{name}", data, disable_notification=True)
        stored.last_modified = stored.last_modified - _OLD
    return len(objects)


def _kinds(environ: dict[str, Any], query: dict[str, list[str]]) -> list[str]:
    """The kinds of a request; `… of data` are requests for the table's files, not its log."""
    sender = "ours" if "Boto3" in environ.get("HTTP_USER_AGENT", "") else "spark"
    method, table = environ["REQUEST_METHOD"], f"{PREFIX}/{KEY}/"
    if method == "GET" and "list-type" in query:
        prefix = query.get("prefix", [""])[0]
        log = [f"{sender} LIST of logs"] if "/_delta_log" in prefix else []
        return [
            "LIST",
            f"{sender} LIST",
            *log,
            *(["LIST of data"] if prefix.startswith(table) and not log else []),
        ]
    if method == "POST" and "delete" in query:
        body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
        environ["wsgi.input"] = BytesIO(body)
        return [
            f"{sender} DELETE",
            "DeleteObjects of data"
            if f"<Key>{table}".encode() in body
            else "DeleteObjects of others",
        ]
    return [method, f"{sender} {'PUT' if method == 'POST' else method}"]


class _Names(list[str]):
    """The sorted names of a bucket."""

    def add(self, name: str) -> None:
        place = bisect_left(self, name)
        if place == len(self) or self[place] != name:
            insort(self, name)

    def drop(self, name: str) -> None:
        place = bisect_left(self, name)
        if place < len(self) and self[place] == name:
            del self[place]


# Requests come in many threads, and a place in a list of names holds only until the next name comes
# or goes.
_NAMES_LOCK = Lock()


def _quick_lists() -> None:
    """Replaces moto's listing, which visits the whole bucket for each page."""
    from moto.s3.utils import _VersionedKeyStore as Keys

    plain_set, plain_pop = Keys.setlist, Keys.pop

    def names(keys: Any) -> _Names:
        return keys.__dict__.setdefault("names", _Names())

    def setlist(self: Any, key: str, values: Any) -> None:
        with _NAMES_LOCK:
            plain_set(self, key, values)
            names(self).add(key)

    def pop(self: Any, key: str) -> None:
        with _NAMES_LOCK:
            plain_pop(self, key)
            names(self).drop(key)

    def list_objects_v2(
        self: Any,
        bucket: FakeBucket,
        prefix: str | None,
        delimiter: str | None,
        continuation_token: str | None,
        start_after: str | None,
        max_keys: int,
    ) -> tuple[list[Any], bool, str | None]:
        del self
        with _NAMES_LOCK:
            return _page(
                names(bucket.keys),
                bucket,
                prefix or "",
                delimiter,
                continuation_token or start_after or "",
                max_keys,
            )

    Keys.setlist, Keys.pop, S3Backend.list_objects_v2 = setlist, pop, list_objects_v2  # type: ignore[method-assign, assignment]


def _page(
    ordered: _Names,
    bucket: FakeBucket,
    begin: str,
    delimiter: str | None,
    after: str,
    max_keys: int,
) -> tuple[list[Any], bool, str | None]:
    """The objects and folders of one page, whether more follow, and the last name."""
    found = list[Any]()
    place = max(bisect_left(ordered, begin), bisect_right(ordered, after) if after else 0)
    last = ""
    while place < len(ordered) and ordered[place].startswith(begin):
        if len(found) == max_keys:
            return found, True, last
        name = ordered[place]
        folder, slash, _ = name[len(begin) :].partition(delimiter) if delimiter else (name, "", "")
        if slash:
            found.append(f"{begin}{folder}{slash}")
            last = f"{begin}{folder}{slash}{_LAST}"
            place = bisect_right(ordered, last)
        else:
            found.append(bucket.keys[name])
            last, place = name, place + 1
    return found, False, None


class _Silent(WSGIRequestHandler):
    """Does not log requests, and keeps connections open as S3 does."""

    protocol_version = "HTTP/1.1"

    def log(self, type: str, message: str, *args: Any) -> None:
        """Logs nothing."""


def main(port: int) -> None:
    """Serves until it is killed."""
    _quick_lists()
    app = Counting(DomainDispatcherApplication(create_backend_app))
    run_simple("127.0.0.1", port, app, threaded=True, request_handler=_Silent)


if __name__ == "__main__":
    main(int(sys.argv[1]))
