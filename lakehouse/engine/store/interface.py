"""The promises of every store, and the names that it takes."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from lakehouse.core.errors import Refused
from lakehouse.core.inventory.objects import StoredObject

# The bucket of what lies in no bucket.
LOCAL = "local"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file in a store: its name relative to the root (raw, never URL-encoded), its size, when it
    was last modified.

    `etag` changes with the content where the store has one; it is empty else. `storage_class` is
    S3's, where a listing has it.
    """

    name: str
    size_bytes: int
    modified_ms: int
    etag: str = ""
    storage_class: str = ""


class Store(Protocol):
    """Whole files under one root, by names with `/` between the parts; a name's key in `bucket` is
    `prefix` and the name.

    The `bucket` of a folder of this machine is `LOCAL`; the `prefix` is empty, or ends in `/`. The
    `requests` that this object has made are counted by S3's names for them, its retries left out;
    none where nothing is asked for.

    Raises:
        Refused: from any method: a name that is empty, absolute or has `..` in it, or a right that
        is missing. Transient: from any method: the storage throttles, times out or is full for now.
    """

    bucket: str
    prefix: str
    requests: Counter[str]

    @abstractmethod
    def keeps_versions(self) -> bool | None:
        """Whether what is deleted stays as an older version; `None` where that may not be known."""
        ...

    @abstractmethod
    def list(self, prefix: str) -> list[StoredFile]:
        """All files in the folder `prefix` and below, sorted by name; `""` is the root."""
        ...

    @abstractmethod
    def folders(self, prefix: str, *, after: str = "") -> Sequence[str]:
        """The names of the folders directly in `prefix`, sorted, after the name `after`."""
        ...

    @abstractmethod
    def walk(self, prefix: str) -> Iterator[StoredObject]:
        """Everything in the folder `prefix` and below as an inventory has it, in no order and never
        held all at once.

        Unlike `list` it gives what is no file to us, too: markers of folders, unfinished writes.
        Keys are the bucket's own.
        """
        ...

    @abstractmethod
    def read(self, name: str) -> bytes:
        """The whole content of one file; FileNotFoundError if there is none."""
        ...

    def read_many(self, names: Sequence[str]) -> Iterator[bytes]:
        """The contents of many files in the order of their names, several at a time where that is
        faster; errors as `read`.
        """
        return map(self.read, names)

    @abstractmethod
    def put(self, name: str, data: bytes) -> None:
        """Writes one file or replaces it; a reader sees the old content or the new."""
        ...

    @abstractmethod
    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Writes one file unless the name is taken; returns whether this call wrote it."""
        ...

    @abstractmethod
    def stat(self, name: str) -> StoredFile | None:
        """One file without its content, `None` if there is none."""
        ...

    def archived_in(self, name: str) -> str | None:
        """The storage class of an archived file; `None` if the file can be read.

        FileNotFoundError if there is no such file.
        """
        del name
        return None

    @abstractmethod
    def delete(self, names: Iterable[str]) -> None:
        """Remove files; those that are not there are fine, and the others go even if one fails."""
        ...

    @abstractmethod
    def delete_each(self, names: Sequence[str]) -> Mapping[str, str]:
        """The same, and why those that are left could not be removed, by name, in place of an
        error; of one request's names, on S3.
        """
        ...


def checked_name(name: str) -> str:
    """`name`, if it names a file inside a store.

    Raises:
        Refused: it is empty, absolute, ends in `/`, has an empty, `.` or `..` part, or a NUL.
    """
    if "\0" in name or not {"", ".", ".."}.isdisjoint(name.split("/")):
        raise Refused(
            f"store: {name!r} names no file inside the lake. Use a relative path without "
            "empty, '.' or '..' parts"
        )
    return name


def folder_prefix(prefix: str) -> str:
    """`prefix` as a folder, ending in `/` (`""` for the root), so that `a/b` never takes in `a/bc`;
    raises as `checked_name`.
    """
    return f"{checked_name(prefix.removesuffix('/'))}/" if prefix else ""
