"""A store in a dictionary, for tests."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import Transient
from lakehouse.store.interface import LOCAL, Store, StoredFile, checked_name, folder_prefix


class MemoryStore(Store):
    """A `Store` that lasts as long as the object."""

    bucket = LOCAL
    prefix = ""

    def __init__(self) -> None:
        self._files: dict[str, tuple[bytes, int]] = {}
        self._lock = threading.Lock()
        self.requests, self.was_read = Counter[str](), list[str]()

    def objects(self, prefix: str) -> Iterator[StoredFile]:
        """See `Store.objects`."""
        folder = folder_prefix(prefix)
        with self._lock:
            found = [(name, *entry) for name, entry in self._files.items()]
        for name, data, modified_ms in found:
            if name.startswith(folder):
                yield StoredFile(name=name, size_bytes=len(data), modified_ms=modified_ms)

    def folders(self, prefix: str) -> Sequence[str]:
        """See `Store.folders`."""
        folder = folder_prefix(prefix)
        with self._lock:
            below = {name.removeprefix(folder) for name in self._files if name.startswith(folder)}
        return sorted({name.partition("/")[0] for name in below if "/" in name})

    def read(self, name: str) -> bytes:
        """See `Store.read`; it is kept in `was_read`."""
        self.was_read.append(name)
        try:
            return self._files[checked_name(name)][0]
        except KeyError:
            raise FileNotFoundError(name) from None

    def read_part(self, name: str, start: int, count: int | None) -> bytes:
        """See `Store.read_part`."""
        return self.read(name)[start:][:count]

    def put(self, name: str, data: bytes) -> None:
        """See `Store.put`."""
        with self._lock:
            self._files[checked_name(name)] = (data, now_ms())

    def date(self, name: str, modified_ms: int) -> None:
        """The file was modified then."""
        with self._lock:
            self._files[name] = (self._files[name][0], modified_ms)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """See `Store.put_if_absent`."""
        entry = (data, now_ms())
        with self._lock:
            return self._files.setdefault(checked_name(name), entry) is entry

    def copy(self, source: StoredFile, name: str, *, of: Store | None = None) -> None:
        """See `Store.copy`."""
        if of is not None and of is not self:
            self.put(name, of.read(source.name))
            return
        if self.stat(source.name) not in (None, source):
            raise Transient(f"{source.name} was written again")
        with self._lock:
            try:
                self._files[checked_name(name)] = self._files[source.name]
            except KeyError:
                raise FileNotFoundError(source.name) from None

    def stat(self, name: str) -> StoredFile | None:
        """See `Store.stat`."""
        found = self._files.get(checked_name(name))
        return (
            None
            if found is None
            else StoredFile(name=name, size_bytes=len(found[0]), modified_ms=found[1])
        )

    def delete_each(self, names: Sequence[str]) -> Mapping[str, str]:
        """See `Store.delete_each`."""
        self.delete(names)
        return {}

    def delete(self, names: Iterable[str]) -> None:
        """See `Store.delete`."""
        for name in [checked_name(name) for name in names]:
            with self._lock:
                self._files.pop(name, None)


class OvertakenStore(MemoryStore):
    """A store in which somebody else acts once, right after the next listing."""

    act: Callable[[], object] | None = None

    def list(self, prefix: str) -> list[StoredFile]:
        """See `Store.list`."""
        listing, act, self.act = super().list(prefix), self.act, None
        if act:
            act()
        return listing
