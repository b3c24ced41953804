"""Lists all keys below a prefix of a bucket, with several threads at once.

S3 lists keys in order, in pages of 1,000. Each request needs the last key of the previous page, so
the requests of one listing have to wait for each other. When a listing turns out to be long and a
thread is idle, this module cuts the range of the remaining keys into spans, at the names of
folders, and lists the spans at the same time. A small lake costs one request. A large lake costs
little more than one request per 1,000 keys, however many folders it has.

Source: AWS, ListObjectsV2: keys come in the order of their UTF-8 bytes, `StartAfter` is exclusive,
`Delimiter` groups by folder.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from itertools import accumulate
from math import ceil
from typing import Any, NamedTuple

from lakehouse.core.errors import Refused
from lakehouse.core.inventory.objects import is_folder_marker

THREADS = 16
_PAGE_KEYS = 1_000

ListedObject = Mapping[str, Any]


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
    from the first key to the last and, with the usual names of files, at most the number of keys.
    """
    remaining = sorted(set(keys))
    entries = list[ListedObject]()
    after = ""
    while remaining:
        after = max(after, _just_before(remaining[0]))
        answer = client.list_objects_v2(Bucket=bucket, Prefix=prefix, StartAfter=after)
        listed = answer.get("Contents", ())
        requested = frozenset(remaining)
        entries += [entry for entry in listed if entry["Key"] in requested]
        if not answer.get("IsTruncated"):
            break
        after = listed[-1]["Key"]
        remaining = [key for key in remaining if key > after]
    return entries


def _just_before(key: str) -> str:
    """A `StartAfter` at which a listing begins with `key`, or with a few keys before `key`."""
    code = ord(key[-1]) - 1
    is_surrogate = 0xD800 <= code < 0xE000  # not valid in UTF-8
    if code < ord(" ") or is_surrogate:
        return key[:-1]
    return key[:-1] + chr(code)


def marks_a_folder(entry: ListedObject) -> bool:
    """Whether the object is a folder marker and not a file, for example because of a final `/`."""
    return entry["Key"].endswith("/") or is_folder_marker(entry["Key"], entry["Size"])
