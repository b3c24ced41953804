"""A lake's store in which the folders of some tables lie elsewhere: in other folders of this machine, or in other buckets.

Whoever reads a table asks for it by its key, as ever; where the table lies is known here alone.

Safety properties:
- Nothing is written into a folder that lies elsewhere: whoever writes such a table is somebody else. Only files that are named one by one
  can be deleted there.
- The lake's own listing holds nothing of these folders, and a listing of one of them holds nothing else.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lakehouse.core.errors import Refused
from lakehouse.core.inventory.objects import StoredObject
from lakehouse.engine.store.interface import Store, StoredFile


def real_address(address: str) -> str:
    """The address of a folder of this machine without links; that of one in a bucket as it is."""
    return os.path.realpath(address) if address.startswith("/") else address


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """The folder `folder` of another store; `""` is its root."""

    store: Store
    folder: str = ""

    def name(self, rest: str) -> str:
        """The name there of what lies at `rest` below the folder."""
        return "/".join(part for part in (self.folder, rest) if part)

    def rest(self, name: str) -> str:
        """The other way round."""
        return name.removeprefix(f"{self.folder}/") if self.folder else name


class MountedStore:
    """A `Store` that is `base`, but for the folders in `mounts`."""

    def __init__(self, base: Store, mounts: Mapping[str, Mount]) -> None:
        self.base, self.mounts = base, dict(mounts)
        self.bucket, self.prefix = base.bucket, base.prefix

    @property
    def requests(self) -> Counter[str]:
        """See `Store.requests`."""
        stores = {id(store): store for store in (self.base, *(each.store for each in self.mounts.values()))}
        return sum((store.requests for store in stores.values()), Counter[str]())

    def keeps_versions(self) -> bool | None:
        """See `Store.keeps_versions`; of the lake's own place."""
        return self.base.keeps_versions()

    def list(self, prefix: str) -> list[StoredFile]:
        """See `Store.list`."""
        key, mount, rest = self._find(prefix)
        if mount is None:
            return self.base.list(prefix)
        return [replace(file, name=f"{key}/{mount.rest(file.name)}") for file in mount.store.list(mount.name(rest))]

    def folders(self, prefix: str, *, after: str = "") -> Sequence[str]:
        """See `Store.folders`."""
        _, mount, rest = self._find(prefix)
        return self.base.folders(prefix, after=after) if mount is None else mount.store.folders(mount.name(rest), after=after)

    def walk(self, prefix: str) -> Iterator[StoredObject]:
        """See `Store.walk`; the keys of what lies elsewhere are those that it would have in the lake."""
        key, mount, rest = self._find(prefix)
        if mount is None:
            yield from self.base.walk(prefix)
            return
        for each in mount.store.walk(mount.name(rest)):
            name = mount.rest(each.key.removeprefix(mount.store.prefix))
            yield replace(each, bucket=self.bucket, key=f"{self.prefix}{key}/{name}")

    def read(self, name: str) -> bytes:
        """See `Store.read`."""
        _, mount, rest = self._find(name)
        return self.base.read(name) if mount is None else mount.store.read(mount.name(rest))

    def read_many(self, names: Sequence[str]) -> Iterator[bytes]:
        """See `Store.read_many`."""
        found = [self._find(name) for name in names]
        mount = found[0][1] if found else None
        if any(each[1] is not mount for each in found):
            return map(self.read, names)
        return self.base.read_many(names) if mount is None else mount.store.read_many([mount.name(rest) for _, _, rest in found])

    def stat(self, name: str) -> StoredFile | None:
        """See `Store.stat`."""
        _, mount, rest = self._find(name)
        found = self.base.stat(name) if mount is None else mount.store.stat(mount.name(rest))
        return found and replace(found, name=name)

    def put(self, name: str, data: bytes) -> None:
        """See `Store.put`; refused for what lies elsewhere."""
        self.base.put(self._own(name), data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """See `Store.put_if_absent`; refused for what lies elsewhere."""
        return self.base.put_if_absent(self._own(name), data)

    def delete(self, names: Iterable[str]) -> None:
        """See `Store.delete`; refused for what lies elsewhere."""
        self.base.delete([self._own(name) for name in names])

    def delete_each(self, names: Sequence[str]) -> Mapping[str, str]:
        """See `Store.delete_each`. The names of one call lie in one place."""
        found = [self._find(name) for name in names]
        mount = found[0][1] if found else None
        if mount is None:
            return self.base.delete_each([self._own(name) for name in names])
        if any(each[1] is not mount for each in found):
            raise Refused(f"store: files of several tables in one deletion, like {names[0]!r} and {names[-1]!r}; accepted: those of one")
        there = {mount.name(rest): name for name, (_, _, rest) in zip(names, found, strict=True)}
        return {there[name]: why for name, why in mount.store.delete_each([*there]).items()}

    def _find(self, name: str) -> tuple[str, Mount | None, str]:
        """The key of the mount that a name lies in, the mount, and the name's rest; no mount for the lake's own."""
        layer, _, below = name.partition("/")
        table, _, rest = below.partition("/")
        key = f"{layer}/{table}"
        return key, self.mounts.get(key), rest

    def _own(self, name: str) -> str:
        key, mount, _ = self._find(name)
        if mount is not None:
            raise Refused(f"store: {name!r} lies in {key}, which others write; accepted: names in the lake's own folders")
        return name
