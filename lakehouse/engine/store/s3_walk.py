"""Lists all keys below a prefix of a bucket, with several threads at once.

S3 lists keys in order, in pages of 1,000. Each request needs the last key of the previous page, so
the requests of one listing have to wait for each other. When a listing turns out to be long and a
thread is idle, this module cuts the remaining keys into spans between folders, and lists the spans
at the same time. A small lake costs one request. A large lake costs little more than one request
per 1,000 keys, however many folders it has.

Source: AWS, ListObjectsV2: keys come in the order of their UTF-8 bytes, `StartAfter` is exclusive,
`Delimiter` groups by folder.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

from lakehouse.core.errors import Refused
from lakehouse.core.inventory.objects import is_folder_marker

THREADS = 16
_PAGE_KEYS = 1_000

ListedObject = Mapping[str, Any]


class _Span(NamedTuple):
    """The keys after `after`, up to and including `upto` (`None`: no bound).

    A `flat` span contains no folder at which to cut the span.
    """

    after: str = ""
    upto: str | None = None
    flat: bool = False

    def holds(self, key: str) -> bool:
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
    ask = partial(_ask, client, Bucket=bucket, MaxKeys=page_keys)
    spans = deque([_Span()])
    running = set[Future[tuple[Sequence[ListedObject], Sequence[_Span]]]]()
    with ThreadPoolExecutor(max_workers=threads) as pool:
        while spans or running:
            while spans and len(running) < threads:
                span = spans.popleft()
                running.add(
                    pool.submit(
                        _list, ask, prefix, span, pieces=threads - len(running) - len(spans)
                    )
                )
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                entries, rest = future.result()
                yield from entries
                spans.extend(rest)


def _list(
    ask: Any, prefix: str, span: _Span, *, pieces: int
) -> tuple[Sequence[ListedObject], Sequence[_Span]]:
    """Lists one page of a span; returns its keys and the remaining spans."""
    answer = ask(span.after, Prefix=prefix)
    listed = answer.get("Contents", ())
    entries = [entry for entry in listed if span.holds(entry["Key"])]
    if not answer.get("IsTruncated") or len(entries) < len(listed):
        return entries, ()
    remaining = span._replace(after=listed[-1]["Key"])
    if pieces < 2 or span.flat:
        return entries, (remaining,)
    return entries, _cut(ask, prefix, remaining, pieces)


def _cut(ask: Any, prefix: str, span: _Span, pieces: int) -> Sequence[_Span]:
    """Cuts a span into at most `pieces` spans, between folders.

    The cuts are at the uppermost level that still has several folders in the span.
    """
    # No cut is possible above the folder that contains both bounds.
    folders = accumulate(f"{name}/" for name in span.after.split("/")[:-1])
    level = max(
        [prefix, *(folder for folder in folders if (span.upto or "").startswith(folder))], key=len
    )
    while True:
        answer = ask(span.after, Prefix=level, Delimiter="/")
        folders = [entry["Prefix"] for entry in answer.get("CommonPrefixes", ())]
        bounds = [folder for folder in folders if span.holds(folder) and folder != span.upto]
        if bounds:
            bounds = bounds[:: -(-len(bounds) // (pieces - 1))]
            return [
                _Span(after, upto)
                for after, upto in zip([span.after, *bounds], [*bounds, span.upto], strict=True)
            ]
        deeper = span.after.find("/", len(level))
        if deeper < 0:
            return [span._replace(flat=True)]
        level = span.after[: deeper + 1]


def _ask(client: Any, after: str, **request: Any) -> Mapping[str, Any]:
    answer = client.list_objects_v2(**request, **({"StartAfter": after} if after else {}))
    keys = [entry["Key"] for entry in answer.get("Contents", ())]
    if keys and (keys[0] <= after or keys[0] > keys[-1]):
        raise Refused(
            f"store: the S3 server lists {keys[0]!r} after {after or keys[-1]!r}, which is not in "
            "order. Use a server that lists keys in order"
        )
    return answer


def find_keys(client: Any, bucket: str, prefix: str, keys: Iterable[str]) -> list[ListedObject]:
    """Those of `keys` that exist below `prefix`, as S3's listing describes them.

    The number of requests is at most that of the keys, and at most that of the pages in a listing
    from the first key to the last.
    """
    wanted = sorted(set(keys))
    entries = list[ListedObject]()
    after = ""
    while wanted:
        after = max(after, _just_before(wanted[0]))
        answer = client.list_objects_v2(Bucket=bucket, Prefix=prefix, StartAfter=after)
        listed = answer.get("Contents", ())
        requested = frozenset(wanted)
        entries += [entry for entry in listed if entry["Key"] in requested]
        if not answer.get("IsTruncated"):
            break
        after = listed[-1]["Key"]
        wanted = [key for key in wanted if key > after]
    return entries


def _just_before(key: str) -> str:
    """A `StartAfter` at which a listing begins with `key`, or with a few keys before `key`."""
    before = ord(key[-1]) - 1
    return key[:-1] + (chr(before) if before >= ord(" ") and not 0xD800 <= before < 0xE000 else "")


def marks_a_folder(entry: ListedObject) -> bool:
    """Whether the object is a folder marker and not a file, for example because of a final `/`."""
    return entry["Key"].endswith("/") or is_folder_marker(entry["Key"], entry["Size"])
