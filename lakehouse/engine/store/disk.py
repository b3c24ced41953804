"""A store in a folder of this machine.

Safety properties:
- A file appears under its name whole and on the disk, or not at all: it is written under a private name beside it,
  flushed, then renamed (`put`) or linked (`put_if_absent`, which link(2) makes atomic).
- No symbolic link leads out of the root: links are not listed, and a name of what lies outside is refused.
"""

import errno
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from lakehouse.core.errors import Refused, Transient
from lakehouse.core.inventory.expiry import UNFINISHED
from lakehouse.core.inventory.objects import StoredObject
from lakehouse.engine.store.interface import LOCAL, StoredFile, checked_name, folder_prefix

# A disk takes several at once; threads of one process share its directory locks, so that more gain nothing.
_UNLINKERS, _FEW = 8, 64
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)
_NO_RIGHT = (errno.EACCES, errno.EPERM, errno.EROFS)


class DiskStore:
    """A `Store` below `root`, which is made by the first write."""

    bucket = LOCAL
    prefix = ""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.requests = Counter[str]()

    def keeps_versions(self) -> bool | None:
        """See `Store.keeps_versions`."""
        return False

    def list(self, prefix: str) -> list[StoredFile]:
        """See `Store.list`."""
        folder = folder_prefix(prefix)
        with _translated(self.root / folder, "list"):
            files = (_stored(name, entry) for name, entry in self._walk(folder) if not UNFINISHED.fullmatch(entry.name))
            return sorted((file for file in files if file), key=lambda file: file.name)

    def folders(self, prefix: str, *, after: str = "") -> Sequence[str]:
        """See `Store.folders`."""
        path = self.root / folder_prefix(prefix)
        self._check_inside(path)
        found: list[str] = []
        with _translated(path, "list"), suppress(FileNotFoundError, NotADirectoryError), os.scandir(path) as entries:
            found = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False) and entry.name > after]
        return sorted(found)

    def walk(self, prefix: str) -> Iterator[StoredObject]:
        """See `Store.walk`. Bytes of a name that are no UTF-8 are escaped, as no reader of the lake could name them."""
        folder = folder_prefix(prefix)
        with _translated(self.root / folder, "list"):
            for name, entry in self._walk(folder):
                if file := _stored(name, entry):
                    key = name.encode("utf-8", "backslashreplace").decode()
                    yield StoredObject(bucket=self.bucket, key=key, size_bytes=file.size_bytes, modified_ms=file.modified_ms)

    def read(self, name: str) -> bytes:
        """See `Store.read`."""
        path = self.root / checked_name(name)
        with _translated(path, "read"):
            if not self._is_inside(path):
                raise Refused(f"store: {path} leads out of {self.root} through a link; accepted: files inside it")
            try:
                return path.read_bytes()
            except (IsADirectoryError, NotADirectoryError) as error:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from error

    def read_many(self, names: Sequence[str]) -> Iterator[bytes]:
        """See `Store.read_many`."""
        return map(self.read, names)

    def put(self, name: str, data: bytes) -> None:
        """See `Store.put`."""
        path = self._path(name)
        with _translated(path, "write"), _unfinished(path, data) as unfinished:
            os.replace(unfinished, path)
            _flush_folder(path.parent)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """See `Store.put_if_absent`."""
        path = self._path(name)
        with _translated(path, "write"), _unfinished(path, data) as unfinished:
            try:
                os.link(unfinished, path)
            except FileExistsError:
                return False
            _flush_folder(path.parent)
            return True

    def stat(self, name: str) -> StoredFile | None:
        """See `Store.stat`."""
        path = self._path(name)
        with _translated(path, "look at"):
            try:
                status = path.lstat()
            except (FileNotFoundError, NotADirectoryError):
                return None
        modified_ms = status.st_mtime_ns // 1_000_000
        return StoredFile(name=name, size_bytes=status.st_size, modified_ms=modified_ms) if stat.S_ISREG(status.st_mode) else None

    def delete(self, names: Iterable[str]) -> None:
        """See `Store.delete`."""
        failed = [error for _, error in self._unlink([*names]) if error]
        if failed:
            with _translated(failed[0].filename, f"delete ({len(failed)} file(s) failed)"):
                raise failed[0]

    def delete_each(self, names: Sequence[str]) -> Mapping[str, str]:
        """See `Store.delete_each`."""
        return {name: error.strerror or type(error).__name__ for name, error in self._unlink(names) if error}

    def _unlink(self, names: Sequence[str]) -> Iterator[tuple[str, OSError | None]]:
        paths = [self._path(name) for name in names]
        if len(paths) < _FEW:
            yield from zip(names, map(_unlink, paths), strict=True)
            return
        with ThreadPoolExecutor(max_workers=_UNLINKERS) as pool:
            yield from zip(names, pool.map(_unlink, paths), strict=True)

    def _path(self, name: str) -> Path:
        path = self.root / checked_name(name)
        if not self._is_inside(path.parent):
            raise Refused(f"store: {path} leads out of {self.root} through a link; accepted: names that stay inside it")
        return path

    def _check_inside(self, folder: Path) -> None:
        if not self._is_inside(folder):
            raise Refused(f"store: {folder} leads out of {self.root} through a link; accepted: folders inside it")

    def _is_inside(self, path: Path) -> bool:
        root = os.path.realpath(self.root)
        return os.path.commonpath((root, os.path.realpath(path))) == root

    def _walk(self, folder: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Files below `folder` (ending in `/`), as found, with their names; what vanishes meanwhile is left out."""
        self._check_inside(self.root / folder)
        pending = [folder]
        while pending:
            inside = pending.pop()
            with suppress(FileNotFoundError, NotADirectoryError), os.scandir(self.root / inside) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(f"{inside}{entry.name}/")
                    elif entry.is_file(follow_symlinks=False):
                        yield f"{inside}{entry.name}", entry


def _unlink(path: Path) -> OSError | None:
    """Why the file is still there; one that was not is fine."""
    try:
        path.unlink()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return error
    return None


def _stored(name: str, entry: os.DirEntry[str]) -> StoredFile | None:
    """The file, or `None` if it vanished since it was found."""
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    return StoredFile(name=name, size_bytes=status.st_size, modified_ms=status.st_mtime_ns // 1_000_000)


@contextmanager
def _unfinished(path: Path, data: bytes) -> Iterator[Path]:
    """A private file beside `path` that holds `data` on the disk; it is gone afterwards, unless renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    private = path.with_name(f".{uuid4().hex}.lakehouse-put")
    try:
        with private.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield private
    finally:
        private.unlink(missing_ok=True)


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _translated(path: Path | str, action: str) -> Iterator[None]:
    """The operating system's errors as ours; FileNotFoundError passes, it is an answer."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        text = f"store: cannot {action} {path}: {error.strerror}"
        if error.errno in _NO_RIGHT:
            raise Refused(f"{text}; this user needs the right to do so on a file system that takes hard links") from error
        if error.errno in _NO_ROOM:
            raise Transient(f"{text}; free some, then try again") from error
        raise Refused(f"{text} (errno {error.errno}); accepted: a folder on a working file system") from error
