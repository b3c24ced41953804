"""A store in a folder of this machine, and one whose tables are in several stores.

**Safety properties** (tests in `test_store.py`)
- A file appears under its name complete and flushed to the disk, or not at all. The data is first
  flushed to a private file in the same folder. Afterwards, that file is renamed (`put`, `copy`) or
  linked (`put_if_absent`, which link(2) makes atomic).
- No stale checksum of Hadoop stays beside a new file: Spark could not read that file.
- No file outside the root is read, written or deleted through a symbolic link: links are not
  listed, and a name is refused if one of its folders is a link that leads outside.

A `MountedStore` has the folders of some tables in other folders or buckets. Callers use names below
the table's key, as for any other table. `place_of` translates a name into the real store and the
name in that store.

**Safety properties** (tests in `test_disk.py`)
- This store changes nothing in a mounted folder, because the folder belongs to other programs.
  A vacuum deletes files there through the real store.
- A listing of the lake contains no file of a mounted folder. A listing of a mounted folder contains
  only its own files.
"""

import errno
import os
import shutil
import stat
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from uuid import uuid4

from lakehouse.base.errors import Refused, Transient
from lakehouse.store.interface import (
    LOCAL,
    Store,
    StoredFile,
    TimeBudget,
    at_once,
    checked_name,
    folder_prefix,
)

_COPIED_AT_ONCE_BYTES = 8 * 1024 * 1024
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)
_NO_RIGHT = (errno.EACCES, errno.EPERM, errno.EROFS)


class DiskStore(Store):
    """A `Store` below `root`. The first write creates that folder."""

    bucket = LOCAL
    prefix = ""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.requests = Counter[str]()

    def objects(self, prefix: str) -> Iterator[StoredFile]:
        """See `Store.objects`. Files that vanish meanwhile are omitted."""
        pending = [folder_prefix(prefix)]
        path = self.root / pending[0]
        self._check_inside(path)
        with translated(path, "list"):
            while pending:
                inside = pending.pop()
                with (
                    suppress(FileNotFoundError, NotADirectoryError),
                    os.scandir(self.root / inside) as entries,
                ):
                    for entry in entries:
                        name = f"{inside}{entry.name}"
                        if entry.is_dir(follow_symlinks=False):
                            pending.append(f"{name}/")
                        elif entry.is_file(follow_symlinks=False):
                            with suppress(FileNotFoundError):
                                yield _stored(name, entry.stat(follow_symlinks=False))

    def folders(self, prefix: str) -> Sequence[str]:
        """See `Store.folders`."""
        path = self.root / folder_prefix(prefix)
        self._check_inside(path)
        with (
            translated(path, "list"),
            suppress(FileNotFoundError, NotADirectoryError),
            os.scandir(path) as entries,
        ):
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        return []

    def read_part(self, name: str, start: int, count: int | None) -> bytes:
        """See `Store.read_part`."""
        path = self.root / checked_name(name)
        self._check_inside(path)
        with translated(path, "read"):
            try:
                with path.open("rb") as file:
                    size = os.fstat(file.fileno()).st_size
                    file.seek(start if start >= 0 else max(0, size + start))
                    return file.read(count)
            except (IsADirectoryError, NotADirectoryError) as error:
                raise FileNotFoundError(
                    errno.ENOENT, os.strerror(errno.ENOENT), str(path)
                ) from error

    def put(self, name: str, data: bytes) -> None:
        """See `Store.put`."""
        path = self._path(name)
        with translated(path, "write"), _unfinished(path, data) as unfinished:
            os.replace(unfinished, path)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """See `Store.put_if_absent`."""
        path = self._path(name)
        with translated(path, "write"), _unfinished(path, data) as unfinished:
            try:
                os.link(unfinished, path)
            except FileExistsError:
                # NFS repeats requests, so the file may be our own link. Source: link(2), "BUGS"
                return path.exists() and path.samefile(unfinished)
            return True

    def copy(self, source: StoredFile, name: str, *, of: Store | None = None) -> None:
        """See `Store.copy`."""
        path = self._path(name)
        store = of if isinstance(of, DiskStore) else self
        original = store._path(source.name)
        with translated(path, "write"), _unfinished(path, original) as unfinished:
            if store.stat(source.name) != source:
                raise Transient(
                    f"store: {source.name} was written again while it was copied; try again"
                )
            os.replace(unfinished, path)

    def stat(self, name: str) -> StoredFile | None:
        """See `Store.stat`."""
        path = self._path(name)
        with translated(path, "look at"), suppress(FileNotFoundError, NotADirectoryError):
            status = path.lstat()
            return _stored(name, status) if stat.S_ISREG(status.st_mode) else None
        return None

    def delete_each(self, names: Sequence[str]) -> Mapping[str, str]:
        """See `Store.delete_each`."""
        errors = at_once(_unlink, [self._path(name) for name in names])
        return {
            name: error.strerror or type(error).__name__
            for name, error in zip(names, errors, strict=True)
            if error
        }

    def _path(self, name: str) -> Path:
        path = self.root / checked_name(name)
        self._check_inside(path.parent)
        return path

    def _check_inside(self, path: Path) -> None:
        root = os.path.realpath(self.root)
        if os.path.commonpath((root, os.path.realpath(path))) != root:
            raise Refused(
                f"store: {path} leads out of {self.root} through a symbolic link. Use names that "
                "stay inside that folder"
            )


def _unlink(path: Path) -> OSError | None:
    """Deletes a file, if it exists, and its Hadoop checksum. Returns the error of a failure.

    Source: Hadoop, ChecksumFileSystem.delete
    """
    try:
        with suppress(FileNotFoundError, NotADirectoryError):
            path.unlink()
    except OSError as error:
        return error
    with suppress(OSError):
        path.with_name(f".{path.name}.crc").unlink()
    return None


def _stored(name: str, status: os.stat_result) -> StoredFile:
    return StoredFile(
        name=name, size_bytes=status.st_size, modified_ms=status.st_mtime_ns // 1_000_000
    )


@contextmanager
def _unfinished(path: Path, data: bytes | Path) -> Iterator[Path]:
    """A private file next to `path` that holds `data` or a copy of a file, flushed to the disk.

    On exit, the names in the folder are flushed to the disk, and the private file is deleted unless
    it was renamed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    private = path.with_name(f".{uuid4().hex}.lakehouse-put")
    try:
        with private.open("xb") as file:
            if isinstance(data, bytes):
                file.write(data)
            else:
                with data.open("rb") as original:
                    shutil.copyfileobj(original, file, _COPIED_AT_ONCE_BYTES)
            file.flush()
            os.fsync(file.fileno())
        if isinstance(data, Path):
            shutil.copymode(data, private)
        # Hadoop's checksum of an earlier file of this name. Source: Hadoop, ChecksumFileSystem
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        yield private
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    finally:
        private.unlink(missing_ok=True)


@contextmanager
def translated(path: Path | str, action: str) -> Iterator[None]:
    """Turns any `OSError` except `FileNotFoundError` into `Refused` or `Transient`."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        text = f"store: cannot {action} {path}: {error.strerror}"
        if error.errno in _NO_RIGHT:
            raise Refused(
                f"{text}. Grant this user the permission, and use a file system with hard links"
            ) from error
        if error.errno in _NO_ROOM:
            raise Transient(f"{text}. Free disk space or file handles, and try again") from error
        raise Refused(
            f"{text} (errno {error.errno}). Use a folder on a working file system"
        ) from error


def real_address(address: str) -> str:
    """`address` with symbolic links resolved; an address in a bucket is unchanged."""
    return os.path.realpath(address) if address.startswith("/") else address


class MountedStore(Store):
    """The store `base`, with some tables in folders of other stores.

    `mounts` maps the key of each of these tables to its store and folder (`""`: the store's root).
    """

    def __init__(self, base: Store, mounts: Mapping[str, tuple[Store, str]]) -> None:
        self.base = base
        self.mounts = dict(mounts)
        self.bucket = base.bucket
        self.prefix = base.prefix
        self.passing = base.passing

    def within(self, budget: TimeBudget) -> Store:
        """See `Store.within`."""
        within = cache(lambda store: store.within(budget))  # several mounts may share a store
        mounts = {key: (within(store), folder) for key, (store, folder) in self.mounts.items()}
        return MountedStore(within(self.base), mounts)

    @property
    def requests(self) -> Counter[str]:
        """See `Store`."""
        # Mounts may share a store, which is counted once.
        stores = {self.base, *(store for store, _ in self.mounts.values())}
        return sum((store.requests for store in stores), Counter[str]())

    def objects(self, prefix: str) -> Iterator[StoredFile]:
        """See `Store.objects`."""
        store, real_name = self.place_of(prefix)
        if store is self.base:
            return store.objects(prefix)
        folder = folder_prefix(real_name)
        mounted_at = folder_prefix(prefix)
        return (
            replace(file, name=mounted_at + file.name.removeprefix(folder))
            for file in store.objects(real_name)
        )

    def folders(self, prefix: str) -> Sequence[str]:
        """See `Store.folders`."""
        store, real_name = self.place_of(prefix)
        return store.folders(real_name)

    def read_part(self, name: str, start: int, count: int | None) -> bytes:
        """See `Store.read_part`."""
        store, real_name = self.place_of(name)
        return store.read_part(real_name, start, count)

    def stat(self, name: str) -> StoredFile | None:
        """See `Store.stat`."""
        store, real_name = self.place_of(name)
        file = store.stat(real_name)
        return None if file is None else replace(file, name=name)

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

    def delete_each(self, names: Sequence[str]) -> Mapping[str, str]:
        """See `Store.delete_each`; refused in a mounted folder."""
        return self.base.delete_each([self._writable(name) for name in names])

    def place_of(self, name: str) -> tuple[Store, str]:
        """See `Store.place_of`."""
        layer, _, rest = name.partition("/")
        table, _, below = rest.partition("/")
        key = f"{layer}/{table}"
        if key not in self.mounts:
            return self.base, name
        store, folder = self.mounts[key]
        return store, "/".join(filter(None, (folder, below)))

    def _writable(self, name: str) -> str:
        store, _ = self.place_of(name)
        if store is not self.base:
            raise Refused(
                f"store: {name!r} lies in a table that other programs write. Use names in the "
                "lake's own folders"
            )
        return name
