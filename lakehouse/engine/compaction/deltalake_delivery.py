"""Copies deltalake's output files into the table's folder, and deletes copies without a commit.

deltalake writes them in the table's workshop, a folder in the home (`deltalake_run`).
No log names these files before the commit, and a vacuum of an adopted table keeps files that its
log never named. So if a run ends between the first copy and the commit, a later run has to know the
names of the copies.

1. Before the first copy, the names and the planned version are recorded in the home directory.
2. Each file is copied under the same name and, on a disk, flushed.
3. The caller commits. If it is certain that nothing was committed, the files are deleted again.
4. After a commit, files that earlier runs certainly did not commit are deleted, and the record is
   removed.

**Safety properties** (tests in `test_deltalake_delivery.py`)
- If it is unknown whether a run committed, its files stay until a later run has committed. From
  then on, the earlier run cannot commit any more, because the version that it would create exists.
  The table's lock shows that the earlier run has ended.
- A file is never deleted if a commit since the planned version names it, even if a checkpoint has
  dropped its tombstone: readers of older versions may need the file. If the log no longer has all
  of these commits, the files stay.
"""

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.core.errors import LakehouseError
from lakehouse.engine.commit_actions import Location
from lakehouse.engine.delta_log import history_since
from lakehouse.engine.lake import Lake
from lakehouse.engine.store import DiskStore, S3Store
from lakehouse.engine.store.disk import flush_folder, translated
from lakehouse.engine.store.s3_objects import upload

_COPIED_AT_ONCE_BYTES = 8 * 1024 * 1024


class CommitFailedError(Exception):
    """Other writers changed planned files or the table itself, or always committed first.

    deltalake's own error has the same name.
    """


class _Delivery(NamedTuple):
    """The names of one run's files, and the version after which the run may have committed them."""

    version: int
    names: list[str]


@contextmanager
def delivered(
    lake: Lake, snapshot: Snapshot, files: Sequence[Path], location: Location
) -> Iterator[None]:
    """Copies files from the table's workshop into the table. The block commits them.

    The caller holds the table's lock. `files` are paths relative to the workshop. The block commits
    after the version of `snapshot`.
    """
    key = snapshot.table
    workshop = workshop_of(lake, key)
    names = [file.as_posix() for file in files]
    earlier_deliveries = _read_record(workshop)
    _record(workshop, [*earlier_deliveries, _Delivery(snapshot.version, names)])
    is_delivered = False
    try:
        for name in names:
            _copy_file(workshop / name, name, location)
        is_delivered = True
        yield
    except BaseException as error:
        if not is_delivered or isinstance(error, CommitFailedError):
            # If this fails, the names stay recorded.
            with suppress(LakehouseError, OSError):
                _delete(names, location)
                _record(workshop, earlier_deliveries)
        raise
    with suppress(LakehouseError, OSError):
        if earlier_deliveries:
            _delete(_uncommitted(lake, key, earlier_deliveries), location)
        _record(workshop, [])


def workshop_of(lake: Lake, key: str) -> Path:
    """The folder in the home in which deltalake rewrites files of the table."""
    return lake.settings.home / "workshops" / key.replace("/", ".")


def _read_record(workshop: Path) -> list[_Delivery]:
    """The recorded deliveries; an empty list if there is no readable record."""
    with suppress(FileNotFoundError, ValueError, TypeError):
        content = json.loads(DiskStore(workshop.parent).read(f"{workshop.name}.json"))
        return [_Delivery(int(version), [*map(str, names)]) for version, names in content]
    return []


def _record(workshop: Path, deliveries: Sequence[_Delivery]) -> None:
    """Replaces the record atomically, because an incomplete record would lose earlier names."""
    store = DiskStore(workshop.parent)
    name = f"{workshop.name}.json"
    if deliveries:
        store.put(name, json.dumps(deliveries).encode())
    else:
        store.delete([name])


def _copy_file(file: Path, name: str, location: Location) -> None:
    store, prefix = location
    if isinstance(store, S3Store):
        upload(file, store, f"{prefix}{name}")
        return
    assert isinstance(store, DiskStore)
    path = store.root / f"{prefix}{name}"
    with translated(path, "write"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with file.open("rb") as original, path.open("xb") as copy:
            shutil.copyfileobj(original, copy, _COPIED_AT_ONCE_BYTES)
            copy.flush()
            os.fsync(copy.fileno())
        flush_folder(path.parent)


def _delete(names: Sequence[str], location: Location) -> None:
    store, prefix = location
    store.delete([f"{prefix}{name}" for name in names])


def _uncommitted(lake: Lake, key: str, deliveries: Sequence[_Delivery]) -> list[str]:
    """The files of the runs that certainly have not committed."""
    facts = lake.facts(key)
    if facts is None:
        return []
    newest = facts.snapshot.version
    names = list[str]()
    for each in deliveries:
        history = history_since(lake.store, facts.history, each.version)
        commits = history.between(each.version, newest) or ()
        # Base names are unique, and compare equal however a log spells the path.
        base_names = set[str]()
        for commit in commits:
            paths = (*commit.added_paths, *commit.removed_paths)
            base_names.update(os.path.basename(unquote(path)) for path in paths)
        if commits and base_names.isdisjoint(map(os.path.basename, each.names)):
            names += each.names
    return names
