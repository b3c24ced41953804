"""A lake's store in which the folders of some tables are in other places.

Callers name a table's files by its key, as for any table. Only this module knows the real place.

**Safety properties** (tests in `test_mounts.py`)
- Nothing is written into a mounted folder, since it belongs to other programs. Its files can be
  deleted only by `delete_each`, which names them one by one.
- A listing of the lake contains no file of a mounted folder. A listing of a mounted folder contains
  only its own files.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import IO, NamedTuple

from lakehouse.core.errors import Refused
from lakehouse.core.inventory.objects import StoredObject
from lakehouse.engine.store.interface import Store, StoredFile, folder_prefix


def real_address(address: str) -> str:
    """`address` with symbolic links resolved; an address in a bucket is unchanged."""
    return os.path.realpath(address) if address.startswith("/") else address


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """The folder `folder` of another store; `""` is its root."""

    store: Store
    folder: str = ""


class _Place(NamedTuple):
    """The mount of a name (`None` for the lake itself), its store, and the name there."""

    mount: Mount | None
    store: Store
    name: str


class MountedStore(Store):
    """The store `base`, with the folders in `mounts` (by table key) in other stores."""

    def __init__(self, base: Store, mounts: Mapping[str, Mount]) -> None:
        self.base = base
        self.mounts = dict(mounts)
        self.bucket = base.bucket
        self.prefix = base.prefix

    @property
    def requests(self) -> Counter[str]:
        """See `Store`."""
        stores = {
            id(store): store
            for store in (self.base, *(each.store for each in self.mounts.values()))
        }
        return sum((store.requests for store in stores.values()), Counter[str]())

    def keeps_versions(self) -> bool | None:
        """See `Store.keeps_versions`. The answer is for the lake's own store."""
        return self.base.keeps_versions()

    def list(self, prefix: str) -> list[StoredFile]:
        """See `Store.list`."""
        mount, store, there = self._find(prefix)
        if mount is None:
            return store.list(prefix)
        folder = folder_prefix(there)
        own = folder_prefix(prefix)
        return [
            replace(file, name=own + file.name.removeprefix(folder)) for file in store.list(there)
        ]

    def folders(self, prefix: str, *, after: str = "") -> Sequence[str]:
        """See `Store.folders`."""
        store, there = self.place_of(prefix)
        return store.folders(there, after=after)

    def walk(self, prefix: str) -> Iterator[StoredObject]:
        """See `Store.walk`. Keys of a mounted folder are given as if it were in the lake."""
        mount, store, there = self._find(prefix)
        if mount is None:
            yield from store.walk(prefix)
            return
        folder = store.prefix + folder_prefix(there)
        own = self.prefix + folder_prefix(prefix)
        for each in store.walk(there):
            yield replace(each, bucket=self.bucket, key=own + each.key.removeprefix(folder))

    def read(self, name: str) -> bytes:
        """See `Store.read`."""
        store, there = self.place_of(name)
        return store.read(there)

    def open(self, name: str) -> IO[bytes]:
        """See `Store.open`."""
        store, there = self.place_of(name)
        return store.open(there)

    def read_end(self, name: str, count: int) -> bytes:
        """See `Store.read_end`."""
        store, there = self.place_of(name)
        return store.read_end(there, count)

    def checksum(self, stored: StoredFile) -> str:
        """See `Store.checksum`."""
        store, there = self.place_of(stored.name)
        return store.checksum(replace(stored, name=there))

    def read_many(self, names: Sequence[str]) -> Iterator[bytes]:
        """See `Store.read_many`."""
        places = [self.place_of(name) for name in names]
        if not places:
            return iter(())
        first, _ = places[0]
        if any(store is not first for store, _ in places):
            return map(self.read, names)
        return first.read_many([there for _, there in places])

    def stat(self, name: str) -> StoredFile | None:
        """See `Store.stat`."""
        store, there = self.place_of(name)
        file = store.stat(there)
        return file and replace(file, name=name)

    def archived_in(self, name: str) -> str | None:
        """See `Store.archived_in`."""
        store, there = self.place_of(name)
        return store.archived_in(there)

    def put(self, name: str, data: bytes) -> None:
        """See `Store.put`; refused in a mounted folder."""
        self.base.put(self._own(name), data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """See `Store.put_if_absent`; refused in a mounted folder."""
        return self.base.put_if_absent(self._own(name), data)

    def copy(self, source: StoredFile, name: str, *, keep_tags: bool = True) -> str:
        """See `Store.copy`; refused from and into a mounted folder."""
        self._own(source.name)
        return self.base.copy(source, self._own(name), keep_tags=keep_tags)

    def delete(self, names: Iterable[str]) -> None:
        """See `Store.delete`; refused in a mounted folder."""
        self.base.delete([self._own(name) for name in names])

    def delete_each(self, names: Sequence[str]) -> Mapping[str, str]:
        """See `Store.delete_each`. All names of one call must be in one place."""
        if not names:
            return {}
        places = [self._find(name) for name in names]
        first = places[0]
        if any(place.mount is not first.mount for place in places):
            raise Refused(
                f"store: files of several places in one deletion, like {names[0]!r} and "
                f"{names[-1]!r}. Use names of one place"
            )
        own = {place.name: name for place, name in zip(places, names, strict=True)}
        return {own[there]: why for there, why in first.store.delete_each([*own]).items()}

    def remove_empty_folders(self, prefix: str) -> None:
        """See `Store.remove_empty_folders`; refused in a mounted folder."""
        self.base.remove_empty_folders(self._own(prefix))

    def place_of(self, name: str) -> tuple[Store, str]:
        """The store that holds a name, and the name there."""
        place = self._find(name)
        return place.store, place.name

    def _find(self, name: str) -> _Place:
        layer, _, below = name.partition("/")
        table, _, rest = below.partition("/")
        mount = self.mounts.get(f"{layer}/{table}")
        if mount is None:
            return _Place(None, self.base, name)
        there = "/".join(part for part in (mount.folder, rest) if part)
        return _Place(mount, mount.store, there)

    def _own(self, name: str) -> str:
        if self._find(name).mount is not None:
            raise Refused(
                f"store: {name!r} lies in a table that others write. Use names in the lake's "
                "own folders"
            )
        return name
