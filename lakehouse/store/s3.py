"""A store in an S3 bucket, or in a server that speaks its protocol.

**Safety properties** (tests in `test_store.py`)
- `put_if_absent` is S3's conditional write. If the name is taken, the object's metadata shows
  whether an earlier attempt of the same call wrote it. So a lost response does not look like a
  write by another program.
- If the server ignores the condition, `put_if_absent` is refused before it could overwrite.
- `delete` and `delete_each` also read the errors of single keys in a successful response.
"""

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import replace
from email.utils import parsedate_to_datetime
from functools import cached_property, partial
from itertools import accumulate
from math import ceil
from operator import attrgetter
from typing import Any, NamedTuple
from uuid import uuid4

from lakehouse.base.clock import pause_about
from lakehouse.base.errors import Refused, Transient
from lakehouse.base.stored_objects import MUST_BE_RESTORED, StoredObject, is_folder_marker
from lakehouse.store.interface import Store, StoredFile, checked_name, folder_prefix
from lakehouse.store.s3_client import (
    PASSING,
    READERS,
    client_from_environ,
    copy_unchanged,
    put_conditionally,
    translated_s3,
)
from lakehouse.store.time_budget import TimeBudget

# A long listing is cut into spans that this many threads list at the same time.
THREADS = 16
_PAGE_KEYS = 1_000

ListedObject = Mapping[str, Any]

# Source: AWS, DeleteObjects: "The request can contain a list of up to 1,000 keys".
_DELETE_BATCH = 1_000
# The average pause before each attempt.
_PAUSES_SECONDS = (0.0, 0.1, 0.3, 0.9, 2.7)
# An empty object. `honours_conditions` tries to create it although it exists, which has to fail.
TAKEN = "_lakehouse/taken"


class S3Store(Store):
    """A `Store` of the keys below `prefix` in `bucket`. The first request loads boto3.

    With a `budget`, no request is sent after the time of a sensor's tick is used up, and
    `make_client` is called with the budget's `client_options`.
    """

    passing = PASSING

    def __init__(
        self,
        bucket: str,
        prefix: str,
        make_client: Callable[..., Any] | None = None,
        budget: TimeBudget | None = None,
    ) -> None:
        self.bucket = bucket
        self.prefix = folder_prefix(prefix)
        self.requests = Counter[str]()
        self._honours_lock = threading.Lock()
        self._honours_if_none_match = False
        self._make_client = make_client or client_from_environ
        self._budget = budget

    @cached_property
    def client(self) -> Any:
        """The S3 client in use, whose requests are counted."""
        options = {} if self._budget is None else self._budget.client_options
        client = self._make_client(**options)
        if self._budget is not None:
            client.meta.events.register("before-send.s3", self._budget.check)
        client.meta.events.register("before-call.s3", self._count)
        return client

    def _count(self, model: Any, **_: Any) -> None:
        self.requests.update([model.name])

    def within(self, budget: TimeBudget) -> "S3Store":
        """The same store with a client of its own, limited to the time of a sensor's tick."""
        return S3Store(self.bucket, self.prefix, self._make_client, budget)

    def keeps_versions(self) -> bool | None:
        """See `Store.keeps_versions`."""
        with suppress(Refused), self._translated("list", ""):
            return "Status" in self.client.get_bucket_versioning(Bucket=self.bucket)
        return None

    def clock_ms(self) -> int:
        """The server's time, from the date of a response."""
        with self._translated("list", self.prefix):
            answer = self.client.list_objects_v2(Bucket=self.bucket, MaxKeys=1)
        date = answer["ResponseMetadata"]["HTTPHeaders"]["date"]
        return round(parsedate_to_datetime(date).timestamp() * 1_000)

    def list(self, prefix: str) -> list[StoredFile]:
        """See `Store.list`. Markers of folders, such as keys that end in `/`, are not files."""
        pages = self._pages(self.prefix + folder_prefix(prefix))
        entries = (entry for page in pages for entry in page.get("Contents", ()))
        files = [self._stored(entry) for entry in entries if not marks_a_folder(entry)]
        return sorted(files, key=attrgetter("name"))

    def find(self, names: Iterable[str]) -> Sequence[StoredFile]:
        """The named files that exist. See `find_keys` for the number of requests."""
        keys = [self.prefix + name for name in names]
        with self._translated("list", self.prefix):
            entries = find_keys(self.client, self.bucket, self.prefix, keys)
        return [self._stored(entry) for entry in entries if not marks_a_folder(entry)]

    def folders(self, prefix: str, *, after: str = "") -> Sequence[str]:
        """See `Store.folders`. The listing begins at `after`, so earlier folders cost nothing."""
        key = self.prefix + folder_prefix(prefix)
        start = {"StartAfter": key + after} if after else {}
        pages = self._pages(key, Delimiter="/", **start)
        entries = (entry for page in pages for entry in page.get("CommonPrefixes", ()))
        names = (entry["Prefix"].removeprefix(key).removesuffix("/") for entry in entries)
        return sorted(name for name in names if name > after)

    def walk(self, prefix: str) -> Iterator[StoredObject]:
        """See `Store.walk`. Only current versions are listed."""
        key = self.prefix + folder_prefix(prefix)
        with self._translated("list", key):
            for entry in walk_keys(self.client, self.bucket, key):
                yield StoredObject(
                    bucket=self.bucket,
                    key=entry["Key"],
                    size_bytes=entry["Size"],
                    modified_ms=round(entry["LastModified"].timestamp() * 1_000),
                    is_dir=is_folder_marker(entry["Key"], entry["Size"]),
                    storage_class=entry.get("StorageClass"),
                )

    def read(self, name: str) -> bytes:
        """See `Store.read`."""
        key = self._key(name)
        with self._translated("read", key):
            return self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read()

    def read_part(self, name: str, start: int, count: int) -> bytes:
        """See `Store.read_part`."""
        key = self._key(name)
        byte_range = f"bytes={start}" if start < 0 else f"bytes={start}-{start + count - 1}"
        with self._translated("read", key):
            answer = self.client.get_object(Bucket=self.bucket, Key=key, Range=byte_range)
            return answer["Body"].read()

    def checksum(self, stored: StoredFile) -> str:
        """See `Store.checksum`."""
        return f"etag:{stored.etag}"

    def read_many(self, names: Sequence[str]) -> Iterator[bytes]:
        """See `Store.read_many`."""
        with ThreadPoolExecutor(max_workers=READERS) as readers:
            yield from readers.map(self.read, names)

    def put(self, name: str, data: bytes) -> None:
        """See `Store.put`."""
        key = self._key(name)
        with self._translated("write", key):
            self.client.put_object(Bucket=self.bucket, Key=key, Body=data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """See `Store.put_if_absent`. Refused, before it writes, if the server would overwrite."""
        key = self._key(name)
        writer = uuid4().hex
        if not self.honours_conditions():
            raise Refused(
                f"store: the server of s3://{self.bucket}/{self.prefix} ignores If-None-Match and "
                "overwrites existing keys. Use AWS S3, or a server with conditional PutObject"
            )
        with self._translated("write", key):
            for pause in _PAUSES_SECONDS:
                pause_about(pause)
                if (is_written := self._put_once(key, data, writer)) is not None:
                    return is_written
        raise Transient(
            f"store: cannot write s3://{self.bucket}/{key}: all {len(_PAUSES_SECONDS)} attempts "
            "conflicted with other writes; try again"
        )

    def copy(self, source: StoredFile, name: str, *, of: Store | None = None) -> None:
        """See `Store.copy`."""
        key = self._key(name)
        store = of or self
        with self._translated("copy", key):
            original = replace(source, name=store.prefix + source.name)
            copy_unchanged(self.client, self.bucket, original, key, of=store.bucket)

    def delete_each(self, names: Sequence[str]) -> Mapping[str, str]:
        """See `Store.delete_each`."""
        keys = {self._key(name): name for name in names}
        order = [*keys]
        failed = dict[str, str]()
        for start in range(0, len(order), _DELETE_BATCH):
            failed |= self._delete_batch(order[start : start + _DELETE_BATCH])
        return {keys[key]: code for key, code in failed.items()}

    def stat(self, name: str) -> StoredFile | None:
        """See `Store.stat`."""
        key = self._key(name)
        with suppress(FileNotFoundError), self._translated("read", key):
            head = self.client.head_object(Bucket=self.bucket, Key=key)
            return self._stored({**head, "Key": key, "Size": head["ContentLength"]})
        return None

    def archived_in(self, name: str) -> str | None:
        """See `Store.archived_in`.

        Source: AWS, HeadObject: a restored copy has `x-amz-restore: ongoing-request="false"` and
        keeps its storage class; `x-amz-archive-status` is set only while an object of
        Intelligent-Tiering is in an archive tier.
        """
        key = self._key(name)
        with self._translated("read", key):
            head = self.client.head_object(Bucket=self.bucket, Key=key)
        storage_class = str(head.get("StorageClass", "STANDARD"))
        if tier := head.get("ArchiveStatus"):
            return f"{storage_class} ({tier})"
        is_restored = 'ongoing-request="false"' in head.get("Restore", "")
        return storage_class if storage_class in MUST_BE_RESTORED and not is_restored else None

    def honours_conditions(self, name: str = TAKEN) -> bool:
        """Whether the server refuses to overwrite the empty object `name`, created if missing."""
        with self._honours_lock:
            if not self._honours_if_none_match:
                key = self.prefix + name
                with self._translated("write", key):
                    # The first write may create the key. Only the second shows an overwrite.
                    is_written = self._put_once(key, b"", uuid4().hex)
                    is_overwritten = is_written and self._put_once(key, b"", uuid4().hex)
                self._honours_if_none_match = not is_overwritten  # `False` is checked again
            return self._honours_if_none_match

    def _pages(self, key: str, **more: str) -> Iterator[Mapping[str, Any]]:
        with self._translated("list", key):
            yield from self.client.get_paginator("list_objects_v2").paginate(
                Bucket=self.bucket, Prefix=key, **more
            )

    def _key(self, name: str) -> str:
        return self.prefix + checked_name(name)

    def _stored(self, entry: Mapping[str, Any]) -> StoredFile:
        return StoredFile(
            name=entry["Key"].removeprefix(self.prefix),
            size_bytes=entry["Size"],
            modified_ms=round(entry["LastModified"].timestamp() * 1_000),
            etag=str(entry.get("ETag", "")).strip('"'),
            storage_class=entry.get("StorageClass", ""),
        )

    def _put_once(self, key: str, data: bytes, writer: str) -> bool | None:
        return put_conditionally(self.client, self.bucket, key, data, writer=writer)

    def _delete_batch(self, keys: Sequence[str]) -> dict[str, str]:
        """Deletes at most 1,000 keys. Returns the error code of each key that S3 did not delete.

        Keys with a temporary error are requested again.
        """
        final: dict[str, str] = {}
        passing = dict.fromkeys(keys, "")
        for pause in _PAUSES_SECONDS:
            pending = [*passing]
            pause_about(pause)
            with self._translated("delete", pending[0]):
                request = {"Objects": [{"Key": key} for key in pending], "Quiet": True}
                answer = self.client.delete_objects(Bucket=self.bucket, Delete=request)
            failed = {error.get("Key", ""): error["Code"] for error in answer.get("Errors", [])}
            if unexpected := failed.keys() - set(pending):
                raise Transient(
                    f"store: cannot delete s3://{self.bucket}/{pending[0]}: the answer names "
                    f"{min(unexpected)!r}, which was not in the request; try again"
                )
            passing = {key: code for key, code in failed.items() if code in PASSING}
            final |= {key: code for key, code in failed.items() if code not in PASSING}
            if not passing:
                return final
        return final | passing

    @contextmanager
    def _translated(self, action: str, key: str) -> Iterator[None]:
        """Turns botocore's errors into `Refused`, `Transient` or `FileNotFoundError`."""
        with translated_s3(f"store: cannot {action} s3://{self.bucket}/{key}", action):
            yield


class _Span(NamedTuple):
    """The keys after `after`, up to and including `upto` (`None`: no bound).

    A `flat` span is not cut, because no folder that begins in it was found.
    """

    after: str = ""
    upto: str | None = None
    flat: bool = False

    def holds(self, key: str) -> bool:
        """Whether the key is in the span."""
        return key > self.after and (self.upto is None or key <= self.upto)


def walk_keys(
    client: Any, bucket: str, prefix: str, *, threads: int = THREADS, page_keys: int = _PAGE_KEYS
) -> Iterator[ListedObject]:
    """Yields every object below a prefix once, unsorted, as S3's listing describes it.

    S3 lists keys in order, in pages of 1,000, and each request needs the last key of the previous
    page. When a listing turns out to be long and a thread is idle, the range of the remaining keys
    is cut into spans, at the names of folders, and the spans are listed at the same time. So a
    large lake costs little more than one request per 1,000 keys, however many folders it has.
    Source: AWS, ListObjectsV2: keys come in the order of their UTF-8 bytes, `StartAfter` is
    exclusive, `Delimiter` groups by folder.

    Memory holds at most one page per thread. Objects that are written or deleted during the listing
    may or may not be included.

    Raises:
        Refused: the server does not list keys in order, so the listing might never end.
    """
    list_page = partial(_list_page, client, Bucket=bucket, MaxKeys=page_keys)
    spans = deque([_Span()])
    running = set[Future[tuple[Sequence[ListedObject], Sequence[_Span]]]]()
    with ThreadPoolExecutor(max_workers=threads) as pool:
        while spans or running:
            while spans and len(running) < threads:
                span = spans.popleft()
                # The threads without a span, including the thread that lists this span.
                idle_count = threads - len(running) - len(spans)
                running.add(pool.submit(_list, list_page, prefix, span, pieces=idle_count))
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                entries, rest = future.result()
                yield from entries
                spans.extend(rest)


def _list(
    list_page: Any, prefix: str, span: _Span, *, pieces: int
) -> tuple[Sequence[ListedObject], Sequence[_Span]]:
    """Lists one page of a span; returns its objects, and the rest in at most `pieces` spans."""
    answer = list_page(span.after, Prefix=prefix)
    listed = answer.get("Contents", ())
    entries = [entry for entry in listed if span.holds(entry["Key"])]
    goes_beyond_span = len(entries) < len(listed)
    if goes_beyond_span or not answer.get("IsTruncated"):
        return entries, ()
    remaining = span._replace(after=listed[-1]["Key"])
    if pieces < 2 or span.flat:
        return entries, (remaining,)
    return entries, _cut(list_page, prefix, remaining, pieces)


def _cut(list_page: Any, prefix: str, span: _Span, pieces: int) -> Sequence[_Span]:
    """Cuts a span into at most `pieces` spans, at the names of folders.

    The cuts are at the uppermost level at which a folder begins in the span. If no level has such a
    folder, the result is the same span as a `flat` one.
    """
    # No cut is possible above the deepest folder that contains both bounds.
    parents = accumulate(f"{name}/" for name in span.after.split("/")[:-1])
    upto = span.upto or ""
    level = max([prefix, *(parent for parent in parents if upto.startswith(parent))], key=len)
    while True:
        answer = list_page(span.after, Prefix=level, Delimiter="/")
        folders = [entry["Prefix"] for entry in answer.get("CommonPrefixes", ())]
        bounds = [folder for folder in folders if span.holds(folder) and folder != span.upto]
        if bounds:
            step = ceil(len(bounds) / (pieces - 1))
            bounds = bounds[::step]
            starts = [span.after, *bounds]
            ends = [*bounds, span.upto]
            return [_Span(after, end) for after, end in zip(starts, ends, strict=True)]
        # Next, look inside the folder of this level that contains the key `after`.
        deeper = span.after.find("/", len(level))
        if deeper < 0:
            return [span._replace(flat=True)]
        level = span.after[: deeper + 1]


def _list_page(client: Any, after: str, **request: Any) -> Mapping[str, Any]:
    """One page of a listing after a key (`""`: from the beginning).

    Raises:
        Refused: the server does not list keys in order.
    """
    if after:
        request["StartAfter"] = after
    answer = client.list_objects_v2(**request)
    keys = [entry["Key"] for entry in answer.get("Contents", ())]
    if keys and (keys[0] <= after or keys[0] > keys[-1]):
        raise Refused(
            f"store: the S3 server lists {keys[0]!r} after {after or keys[-1]!r}, which is not in "
            "order. Use a server that lists keys in order"
        )
    return answer


def find_keys(client: Any, bucket: str, prefix: str, keys: Iterable[str]) -> list[ListedObject]:
    """The objects with these keys below `prefix`, as S3's listing describes them.

    Missing keys are omitted. The number of requests is at most the number of pages in a listing
    from the first key to the last and, with the usual names of files, at most the number of keys: a
    listing after a key without its last character begins with that key, or shortly before it.
    """
    remaining = sorted(set(keys))
    entries = list[ListedObject]()
    after = ""
    while remaining:
        after = max(after, remaining[0][:-1])
        answer = client.list_objects_v2(Bucket=bucket, Prefix=prefix, StartAfter=after)
        listed = answer.get("Contents", ())
        requested = frozenset(remaining)
        entries += [entry for entry in listed if entry["Key"] in requested]
        if not answer.get("IsTruncated"):
            break
        after = listed[-1]["Key"]
        remaining = [key for key in remaining if key > after]
    return entries


def marks_a_folder(entry: ListedObject) -> bool:
    """Whether the object is a folder marker and not a file, for example because of a final `/`."""
    return entry["Key"].endswith("/") or is_folder_marker(entry["Key"], entry["Size"])
