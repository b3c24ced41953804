"""The interface of every store, the rules for file names, and the time of a sensor's tick.

A `TimeBudget` limits the time of a tick's storage requests, and a `FairOrder` decides which tables
come first. Dagster ends a tick after 60 s, and the tick's results are lost
(dagster-io/dagster#14830). Outside of ticks, a client makes three attempts of 60 s, so a request to
a server that accepts connections but never answers takes 181 s. With such a client, Dagster would
end every tick at the same table.

1. The S3 clients of a tick wait a few seconds for a response, and try twice.
2. A late tick does not start with another table. The next tick serves the remaining tables first.
3. When the time is used up, no more requests are sent. An attempt that was already sent ends within
   seconds, by its timeouts.
"""

import time
from abc import abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha256
from operator import attrgetter
from typing import Any, Protocol, TypeVar

from lakehouse.base.errors import Refused, Transient
from lakehouse.base.stored_objects import (
    UNFINISHED,
    StoredFile,
    StoredObject,
    is_folder_marker,
)
from lakehouse.base.text import count_of

# The `bucket` of a store that is a folder of this machine.
LOCAL = "local"
_PIECE_BYTES = 8 * 1024 * 1024
# The number of small requests in flight. If each request takes at least 10 ms, the rate stays below
# the 5,500 per second that S3 answers below one prefix.
REQUESTS_AT_ONCE = 32
Answer = TypeVar("Answer")


def at_once(ask: Callable[..., Answer], *arguments: Iterable[Any]) -> list[Answer]:
    """The answers to many small requests, of which `REQUESTS_AT_ONCE` are in flight."""
    with ThreadPoolExecutor(max_workers=REQUESTS_AT_ONCE) as pool:
        return [*pool.map(ask, *arguments)]


class ArchivedError(Refused):
    """An object is in an archive, `storage_class`, and cannot be read until it is restored."""

    def __init__(self, message: str, *, storage_class: str) -> None:
        super().__init__(message)
        self.storage_class = storage_class


class Store(Protocol):
    """Reads and writes whole files below one root. `/` separates the parts of a file's name.

    The key of a file in `bucket` is `prefix` followed by the file's name. `bucket` is `LOCAL` for a
    folder of this machine. `prefix` is empty or ends in `/`. `requests` counts the S3 requests that
    this store sent, by operation and without retries. For a disk, `requests` stays empty.

    Any method may raise:
        Refused: a name is not valid (`checked_name`), a permission is missing, or the storage
            reports another lasting error.
        Transient: the storage throttles, times out, or is temporarily full.
    """

    bucket: str
    prefix: str
    requests: Counter[str]
    # Reasons in the answer of `delete_each` after which the same deletion may succeed later.
    passing: frozenset[str] = frozenset()

    @abstractmethod
    def objects(self, prefix: str) -> Iterator[StoredFile]:
        """Yields every object in the folder `prefix` and below, unsorted and never all in memory.

        Unlike `list`, this includes folder markers and unfinished writes.
        """

    def list(self, prefix: str) -> list[StoredFile]:
        """All files in the folder `prefix` and below, sorted by name; `""` is the root."""
        files: list[StoredFile] = []
        for file in self.objects(prefix):
            key = self.prefix + file.name
            is_unfinished = UNFINISHED.fullmatch(key.rpartition("/")[2])
            is_marker = key.endswith("/") or is_folder_marker(key, file.size_bytes)
            if not is_unfinished and not is_marker:
                files.append(file)
        return sorted(files, key=attrgetter("name"))

    def walk(self, prefix: str) -> Iterator[StoredObject]:
        """Yields what `objects` yields, as an inventory lists it, with whole keys of the bucket.

        In keys, bytes that are not UTF-8 are escaped, so such a key does not lead to its file.
        """
        for file in self.objects(prefix):
            key = f"{self.prefix}{file.name}".encode("utf-8", "backslashreplace").decode()
            yield StoredObject(
                bucket=self.bucket,
                key=key,
                size_bytes=file.size_bytes,
                modified_ms=file.modified_ms,
                is_dir=is_folder_marker(key, file.size_bytes),
                storage_class=file.storage_class or None,
            )

    @abstractmethod
    def folders(self, prefix: str) -> Sequence[str]:
        """The sorted names of the folders directly in `prefix`."""

    def read(self, name: str) -> bytes:
        """The whole content of one file; raises as `read_part`."""
        return self.read_part(name, 0, None)

    @abstractmethod
    def read_part(self, name: str, start: int, count: int | None) -> bytes:
        """`count` bytes of one file from an existing byte on, or (`None`) all up to its end.

        If the file is shorter, all bytes up to its end. With `start=-count`, the last bytes.

        Raises:
            FileNotFoundError: the file does not exist.
            ArchivedError: on S3, the file must be restored first.
        """

    def checksum(self, stored: StoredFile) -> str:
        """A checksum of a file's content. The checksum's prefix names the method.

        On S3, the checksum is the ETag in `stored`. The file is never in memory as a whole.
        """
        if stored.etag:
            return f"etag:{stored.etag}"
        digest = sha256()
        for start in range(0, stored.size_bytes, _PIECE_BYTES):
            digest.update(self.read_part(stored.name, start, _PIECE_BYTES))
        return f"sha256:{digest.hexdigest()}"

    def read_many(self, names: Sequence[str]) -> Iterator[bytes]:
        """Yields the contents of many files, in the order of `names`; raises as `read`.

        From S3, several files are read at a time.
        """
        if all(self.place_of(name)[0].bucket == LOCAL for name in names):
            yield from map(self.read, names)
        else:
            with ThreadPoolExecutor(max_workers=REQUESTS_AT_ONCE) as pool:
                yield from pool.map(self.read, names)

    @abstractmethod
    def put(self, name: str, data: bytes) -> None:
        """Writes or replaces one file. A reader sees either the old content or the new."""

    @abstractmethod
    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Writes one file unless the name is taken; returns whether this call wrote the file."""

    @abstractmethod
    def copy(self, source: StoredFile, name: str, *, of: "Store | None" = None) -> None:
        """Copies a file to another name. Replaces a file of that name, if there is one.

        `source` is the file as it was listed, by default in this store, or in the store `of` of the
        same kind. The copy appears complete or not at all, with the time of copying. S3 copies at
        most 5 GiB, into the storage class of `source`, and no tags.

        Raises:
            FileNotFoundError: the file does not exist.
            Transient: the file was written again since it was listed.
        """

    @abstractmethod
    def stat(self, name: str) -> StoredFile | None:
        """The metadata of one file, or `None` if it does not exist."""

    def delete(self, names: Iterable[str]) -> None:
        """Deletes files. Missing files are ignored.

        A file that cannot be deleted does not stop the deletion of the others. The error is raised
        afterwards.
        """
        requested = [*names]
        failed = self.delete_each(requested)
        if not failed:
            return
        permanent = {name: why for name, why in failed.items() if why not in self.passing}
        name, why = next(iter((permanent or failed).items()))
        text = (
            f"store: {len(failed)} of {count_of(len(requested), 'file')} could not be deleted, for "
            f"example {self.prefix}{name} in {self.bucket} ({why})"
        )
        if not permanent:
            raise Transient(f"{text}; try again")
        raise Refused(
            f"{text}. Grant the permission (on S3: s3:DeleteObject) on every file of the lake"
        )

    def place_of(self, name: str) -> "tuple[Store, str]":
        """The real store of a name, and the name in that store (`MountedStore`)."""
        return self, name

    def within(self, budget: "TimeBudget") -> "Store":
        """The same store, with its S3 requests limited to the time of a sensor's tick.

        Requests to a disk are not limited.
        """
        del budget
        return self

    @abstractmethod
    def delete_each(self, names: Sequence[str]) -> Mapping[str, str]:
        """Deletes files as `delete` does, but returns why each remaining file was not deleted."""


def checked_name(name: str) -> str:
    """`name`, if it names a file inside a store.

    Raises:
        Refused: `name` is empty, absolute, ends in `/`, or has an empty, `.` or `..` part or a NUL.
    """
    if "\0" in name or not {"", ".", ".."}.isdisjoint(name.split("/")):
        raise Refused(
            f"store: {name!r} is not the name of a file inside the lake. Use a relative path "
            "without empty, '.' or '..' parts"
        )
    return name


def folder_prefix(prefix: str) -> str:
    """`prefix` with a final `/`, so that `a/b` never matches `a/bc`; `""`, the root, stays empty.

    Raises as `checked_name`.
    """
    return f"{checked_name(prefix.removesuffix('/'))}/" if prefix else ""


# With the default timeouts, a request that is never answered takes 13 s: two attempts of 6 s, and a
# pause.
ATTEMPTS = 2


@dataclass(slots=True, kw_only=True)
class TimeBudget:
    """The time budget of one sensor's ticks.

    After `late_seconds`, a tick starts no more work. After `most_seconds`, it sends no more
    requests, so it ends within 41 s: 32 s, plus the timeouts of the last attempt. The timeouts of
    an attempt (`connect_seconds`, `read_seconds`) allow for a listing by a busy server, which takes
    up to 3 s.

    If two ticks run at the same time, both use the budget of the tick that began later.
    """

    late_seconds: float = 18.0
    most_seconds: float = 32.0
    connect_seconds: float = 3.0
    read_seconds: float = 6.0
    clock: Callable[[], float] = time.monotonic
    _began: float = field(default=float("inf"), init=False)

    def begin(self) -> None:
        """Starts the budget of a tick."""
        self._began = self.clock()

    @property
    def client_options(self) -> dict[str, Any]:
        """The options of `s3_client` for clients of a tick."""
        return {
            "connect_seconds": self.connect_seconds,
            "read_seconds": self.read_seconds,
            "max_attempts": ATTEMPTS,
        }

    @property
    def spent_seconds(self) -> float:
        """Seconds since the tick began; negative infinity before the first tick."""
        return self.clock() - self._began

    def is_late(self, share: float = 1.0) -> bool:
        """Whether this `share` of `late_seconds` is used up, so that no more work should start."""
        return self.spent_seconds >= share * self.late_seconds

    def check(self, **_: Any) -> None:
        """Called before a request is sent.

        Raises:
            Transient: the time is used up.
        """
        if self.spent_seconds >= self.most_seconds:
            raise Transient(
                f"storage is slow, and the {self.most_seconds:g} s of this tick are used up; "
                "the next tick tries again"
            )


class FairOrder:
    """The order in which the ticks of one process serve keys.

    The keys that the last tick did not serve come first, so every key is served eventually.
    """

    def __init__(self, keys: Iterable[str]) -> None:
        self._keys = deque(keys)

    def within(self, budget: TimeBudget) -> Iterator[str]:
        """Yields keys in order until the tick is late.

        At least one key is yielded, so that every tick makes progress.
        """
        for served_count in range(len(self._keys)):
            if served_count and budget.is_late():
                break
            self._keys.rotate(-1)
            yield self._keys[-1]
