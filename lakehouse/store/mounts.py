"""A lake's store in which the folders of some tables are in other folders or buckets.

Callers use names below the table's key, as for any other table. `place_of` translates a name into
the real store and the name in that store.

**Safety properties** (tests in `test_mounts.py`)
- This store writes nothing into a mounted folder, because the folder belongs to other programs.
  The only change that it makes there is `delete_each`, by which a vacuum deletes files.
- A listing of the lake contains no file of a mounted folder. A listing of a mounted folder contains
  only its own files.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from lakehouse.base.errors import Refused
from lakehouse.base.stored_objects import StoredObject
from lakehouse.store.interface import Store, StoredFile, folder_prefix


def real_address(address: str) -> str:
    """`address` with symbolic links resolved; an address in a bucket is unchanged."""
    return os.path.realpath(address) if address.startswith("/") else address


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """The folder `folder` of another store; `""` is the store's root."""

    store: Store
    folder: str = ""


class _Location(NamedTuple):
    """The mount of a name (`None` for the lake itself), the real store, and the name in it."""

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
        # Mounts may share a store, which is counted once.
        stores = {id(self.base): self.base}
        for mount in self.mounts.values():
            stores[id(mount.store)] = mount.store
        return sum((store.requests for store in stores.values()), Counter[str]())

    def keeps_versions(self) -> bool | None:
        """See `Store.keeps_versions`. Answers for `base`; the buckets of mounts may differ."""
        return self.base.keeps_versions()

    def list(self, prefix: str) -> list[StoredFile]:
        """See `Store.list`."""
        mount, store, real_name = self._resolve(prefix)
        if mount is None:
            return store.list(prefix)
        folder = folder_prefix(real_name)
        mounted_at = folder_prefix(prefix)
        return [
            replace(file, name=mounted_at + file.name.removeprefix(folder))
            for file in store.list(real_name)
        ]

    def folders(self, prefix: str, *, after: str = "") -> Sequence[str]:
        """See `Store.folders`."""
        store, real_name = self.place_of(prefix)
        return store.folders(real_name, after=after)

    def walk(self, prefix: str) -> Iterator[StoredObject]:
        """See `Store.walk`. Yields keys as if mounted folders were in the lake's bucket."""
        mount, store, real_name = self._resolve(prefix)
        if mount is None:
            yield from store.walk(prefix)
            return
        folder = store.prefix + folder_prefix(real_name)
        mounted_at = self.prefix + folder_prefix(prefix)
        for each in store.walk(real_name):
            yield replace(each, bucket=self.bucket, key=mounted_at + each.key.removeprefix(folder))

    def read(self, name: str) -> bytes:
        """See `Store.read`."""
        store, real_name = self.place_of(name)
        return store.read(real_name)

    def read_part(self, name: str, start: int, count: int) -> bytes:
        """See `Store.read_part`."""
        store, real_name = self.place_of(name)
        return store.read_part(real_name, start, count)

    def checksum(self, stored: StoredFile) -> str:
        """See `Store.checksum`."""
        store, real_name = self.place_of(stored.name)
        return store.checksum(replace(stored, name=real_name))

    def read_many(self, names: Sequence[str]) -> Iterator[bytes]:
        """See `Store.read_many`."""
        locations = [self.place_of(name) for name in names]
        if not locations:
            return iter(())
        first, _ = locations[0]
        if any(store is not first for store, _ in locations):
            return map(self.read, names)
        return first.read_many([real_name for _, real_name in locations])

    def stat(self, name: str) -> StoredFile | None:
        """See `Store.stat`."""
        store, real_name = self.place_of(name)
        file = store.stat(real_name)
        return None if file is None else replace(file, name=name)

    def archived_in(self, name: str) -> str | None:
        """See `Store.archived_in`."""
        store, real_name = self.place_of(name)
        return store.archived_in(real_name)

    def put(self, name: str, data: bytes) -> None:
        """See `Store.put`; refused in a mounted folder."""
        self.base.put(self._writable(name), data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """See `Store.put_if_absent`; refused in a mounted folder."""
        return self.base.put_if_absent(self._writable(name), data)

    def copy(self, source: StoredFile, name: str, *, of: Store | None = None) -> None:
        """See `Store.copy`; refused into a mounted folder."""
        store, real_name = self.place_of(source.name)
        self.base.copy(replace(source, name=real_name), self._writable(name), of=of or store)

    def delete(self, names: Iterable[str]) -> None:
        """See `Store.delete`; refused in a mounted folder."""
        self.base.delete([self._writable(name) for name in names])

    def delete_each(self, names: Sequence[str]) -> Mapping[str, str]:
        """See `Store.delete_each`. All names of one call must be in the same mount, or in none."""
        if not names:
            return {}
        locations = [self._resolve(name) for name in names]
        first = locations[0]
        if any(location.mount is not first.mount for location in locations):
            raise Refused(
                "store: one deletion names files of several mounted tables, for example "
                f"{names[0]!r} and {names[-1]!r}. Use one deletion for each table"
            )
        real_names = [location.name for location in locations]
        names_by_real_name = dict(zip(real_names, names, strict=True))
        failed = first.store.delete_each([*names_by_real_name])
        return {names_by_real_name[real_name]: why for real_name, why in failed.items()}

    def place_of(self, name: str) -> tuple[Store, str]:
        """The real store of a name, and the name in that store."""
        location = self._resolve(name)
        return location.store, location.name

    def _resolve(self, name: str) -> _Location:
        layer, _, below = name.partition("/")
        table, _, rest = below.partition("/")
        mount = self.mounts.get(f"{layer}/{table}")
        if mount is None:
            return _Location(None, self.base, name)
        real_name = "/".join(part for part in (mount.folder, rest) if part)
        return _Location(mount, mount.store, real_name)

    def _writable(self, name: str) -> str:
        if self._resolve(name).mount is not None:
            raise Refused(
                f"store: {name!r} lies in a table that other programs write. Use names in the "
                "lake's own folders"
            )
        return name
