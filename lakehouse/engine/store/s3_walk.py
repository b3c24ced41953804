"""Every key below a prefix of a bucket, listed by several threads at once.

S3 gives keys in order, 1,000 to a page, and the next page is asked for by the last key of the one before: one listing is a row of
requests that wait for each other. Here the order is cut at folders into spans, as soon as a listing turns out to be long and a
thread has nothing to do, and each span is listed by itself. So a small lake costs the one request that it always did, and a large
one hardly more than a page per 1,000 keys, however many folders it has.

Source: AWS, ListObjectsV2: keys come in the order of their UTF-8 bytes, `StartAfter` is exclusive, `Delimiter` groups by folder.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from lakehouse.core.errors import Refused

THREADS = 16
_PAGE_KEYS = 1_000

type_of_entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Span:
    """The keys after `after` up to `upto`, which is among them; `None` is no bound. One that is `flat` has no folder to be cut at."""

    after: str = ""
    upto: str | None = None
    flat: bool = False

    def holds(self, key: str) -> bool:
        return key > self.after and (self.upto is None or key <= self.upto)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    """What one request listed, and the spans that are left."""

    entries: Sequence[type_of_entry]
    rest: Sequence[_Span]


class ParallelWalk:
    """The listing of one prefix; at most one page for each thread is held."""

    def __init__(self, client: Any, bucket: str, prefix: str, *, threads: int = THREADS, page_keys: int = _PAGE_KEYS) -> None:
        self._client, self._threads = client, threads
        self._request = {"Bucket": bucket, "MaxKeys": page_keys}
        self._prefix = prefix

    def entries(self) -> Iterator[type_of_entry]:
        """Every key once, as S3 describes it, in no order. What is written or deleted meanwhile may be there or not.

        Raises:
            Refused: the server does not list in order, so that a listing could not end.
        """
        spans = deque([_Span()])
        running: set[Future[_Page]] = set()
        with ThreadPoolExecutor(max_workers=self._threads) as threads:
            while spans or running:
                while spans and len(running) < self._threads:
                    span = spans.popleft()
                    running.add(threads.submit(self._list, span, spare=self._threads - len(running) - len(spans)))
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    page = future.result()
                    yield from page.entries
                    spans.extend(page.rest)

    def _list(self, span: _Span, *, spare: int) -> _Page:
        answer = self._ask(self._prefix, span.after)
        listed = answer.get("Contents", ())
        entries = [entry for entry in listed if span.holds(entry["Key"])]
        if not answer.get("IsTruncated") or len(entries) < len(listed):
            return _Page(entries=entries, rest=())
        last = listed[-1]["Key"]
        left = _Span(after=last, upto=span.upto, flat=span.flat)
        return _Page(entries=entries, rest=self._cut(left, spare) if spare > 1 and not span.flat else (left,))

    def _cut(self, span: _Span, pieces: int) -> Sequence[_Span]:
        """The same keys in at most `pieces` spans, cut between the folders of the uppermost level that has several left."""
        # Above the folder in which both bounds are there is nothing to cut at.
        level = self._prefix if span.upto is None else max(self._prefix, _shared_folder(span.after, span.upto), key=len)
        while True:
            answer = self._ask(level, span.after, Delimiter="/")
            folders = [entry["Prefix"] for entry in answer.get("CommonPrefixes", ())]
            bounds = [folder for folder in folders if span.holds(folder) and folder != span.upto]
            if bounds:
                bounds = bounds[:: -(-len(bounds) // (pieces - 1))]
                return [_Span(after=after, upto=upto) for after, upto in zip([span.after, *bounds], [*bounds, span.upto], strict=True)]
            deeper = span.after.find("/", len(level))
            if deeper < 0:
                return [_Span(after=span.after, upto=span.upto, flat=True)]
            level = span.after[: deeper + 1]

    def _ask(self, prefix: str, after: str, **more: str) -> Mapping[str, Any]:
        begin = {"StartAfter": after} if after else {}
        answer = self._client.list_objects_v2(**self._request, Prefix=prefix, **begin, **more)
        keys = [entry["Key"] for entry in answer.get("Contents", ())]
        if keys and (keys[0] <= after or keys[0] > keys[-1]):
            raise Refused(f"store: the S3 server lists {keys[0]!r} after {after or keys[-1]!r}; accepted: one that lists keys in order")
        return answer


def find_keys(client: Any, bucket: str, prefix: str, keys: Iterable[str]) -> list[type_of_entry]:
    """Those of the `keys` below `prefix` that are there, as a listing describes them.

    It asks no more often than there are keys, nor than there are pages between the first and the last of them.
    """
    wanted, found, after = sorted(set(keys)), list[type_of_entry](), ""
    while wanted:
        after = max(after, _just_before(wanted[0]))
        answer = client.list_objects_v2(Bucket=bucket, Prefix=prefix, StartAfter=after)
        listed, asked = answer.get("Contents", ()), frozenset(wanted)
        found += [entry for entry in listed if entry["Key"] in asked]
        if not answer.get("IsTruncated"):
            break
        after = listed[-1]["Key"]
        wanted = [key for key in wanted if key > after]
    return found


def answered_ms(answer: Mapping[str, Any]) -> int:
    """When the server gave this answer, by its own clock."""
    return round(parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"]).timestamp() * 1_000)


def _just_before(key: str) -> str:
    """A text before the key, with next to no key between them; S3 lists what comes after it."""
    before = ord(key[-1]) - 1
    return key[:-1] + (chr(before) if before >= ord(" ") and not 0xD800 <= before < 0xE000 else "")


def _shared_folder(one: str, other: str) -> str:
    """The deepest folder that two keys are both in, ending in `/`; empty if there is none."""
    same = next((place for place, (left, right) in enumerate(zip(one, other, strict=False)) if left != right), min(len(one), len(other)))
    return one[: one.rfind("/", 0, same) + 1]
