"""Copies files that deltalake wrote into the table, and deletes those that were not committed.

No log names these files before the commit, and a vacuum of an adopted table keeps what its log
never named. So a run that ends between the first copy and the commit must not be the last to know
their names.

1. The names are recorded in the home, before the first copy.
2. Each file is copied to its own name, and flushed to the disk.
3. The caller commits. If it is certain that nothing was committed, the files are deleted again.
4. After a commit, the files that earlier runs left are deleted, and the record is removed.

**Safety properties** (tests in `test_delivered_files.py`)
- If it is unknown whether a run committed, its files stay until a later run has committed. From
  then on, no request of the earlier run can succeed: it asked for a version that exists now. The
  table's lock shows that the earlier run has ended.
- A file that the log names, as live or as removed, is never deleted.
"""

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import unquote

from lakehouse.core.errors import LakehouseError
from lakehouse.engine.lake import Lake
from lakehouse.engine.store import DiskStore, S3Store
from lakehouse.engine.store.disk import flush_folder, translated
from lakehouse.engine.store.s3_objects import upload

# The store that holds a table, and the prefix of the table's names in it.
Place = tuple[DiskStore | S3Store, str]
_COPIED_AT_ONCE_BYTES = 8 * 1024 * 1024


class CommitFailedError(Exception):
    """Another writer changed planned files or the table itself. deltalake uses the same name."""


@contextmanager
def delivered(lake: Lake, key: str, files: Sequence[Path], place: Place) -> Iterator[None]:
    """The files of the table's workshop are in the table inside the block, which commits them.

    The caller holds the table's lock. The files are paths relative to the workshop.
    """
    workshop = workshop_of(lake, key)
    names = [file.as_posix() for file in files]
    record = workshop.with_name(f"{workshop.name}.json")
    earlier = _recorded(record)
    record.write_text(json.dumps([*earlier, *names]))
    is_delivered = False
    try:
        for name in names:
            _deliver(workshop / name, name, place)
        is_delivered = True
        yield
    except BaseException as error:
        if not is_delivered or isinstance(error, CommitFailedError):
            # If this fails, the names stay recorded.
            with suppress(LakehouseError, OSError):
                _delete(names, place)
                record.write_text(json.dumps(earlier))
        raise
    with suppress(LakehouseError, OSError):
        if earlier:
            _delete(_unnamed(lake, key, earlier), place)
        record.unlink()


def workshop_of(lake: Lake, key: str) -> Path:
    """The folder in the home in which deltalake rewrites files of the table."""
    return lake.settings.home / "workshops" / key.replace("/", ".")


def _recorded(record: Path) -> list[str]:
    with suppress(FileNotFoundError, ValueError):
        return [str(name) for name in json.loads(record.read_text())]
    return []


def _deliver(file: Path, name: str, place: Place) -> None:
    store, prefix = place
    if isinstance(store, S3Store):
        upload(file, store, f"{prefix}{name}")
        return
    path = store.root / f"{prefix}{name}"
    with translated(path, "write"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with file.open("rb") as original, path.open("xb") as copy:
            shutil.copyfileobj(original, copy, _COPIED_AT_ONCE_BYTES)
            copy.flush()
            os.fsync(copy.fileno())
        flush_folder(path.parent)


def _delete(names: Sequence[str], place: Place) -> None:
    store, prefix = place
    store.delete([f"{prefix}{name}" for name in names])


def _unnamed(lake: Lake, key: str, names: Sequence[str]) -> list[str]:
    """The files that the table's log does not name; none if there is no log."""
    facts = lake.facts(key)
    if facts is None:
        return []
    known = (*facts.snapshot.files, *facts.snapshot.tombstones)
    named = {unquote(file.path) for file in known}
    return [name for name in names if name not in named]
