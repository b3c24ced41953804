"""Moves the new files of a compaction to a colder storage class.

OPTIMIZE writes all files into STANDARD, because S3A has one storage class for all files that a
server writes. Afterwards, each new file is copied onto itself with the colder class.
Source: Hadoop 3.5.0, S3A, `fs.s3a.create.storage.class`, read when a file system is created.

**Safety properties** (tests in `engine/tiers/test_cold_files.py`)
- One COPY request moves an object: it replaces it with a copy of itself, or leaves it unchanged.
  A file that was written again or deleted is not moved.
- A file that cannot be moved stays in STANDARD. The compaction is complete without the move.
- If the bucket has versions, or may have them, nothing is moved: the former copies would stay.
"""

import contextlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from lakehouse.core.compaction.outcome import ColdMove
from lakehouse.core.delta.paths import name_in_table
from lakehouse.core.delta.snapshot import TableFacts
from lakehouse.core.errors import LakehouseError
from lakehouse.core.text import count_of
from lakehouse.core.tiers.lifecycle_rules import MINIMUM_BYTES
from lakehouse.engine.journal.records import encoded
from lakehouse.engine.lake import Lake
from lakehouse.engine.store import S3Store
from lakehouse.engine.store.s3_client import READERS
from lakehouse.engine.store.s3_objects import put_storage_class, s3_place
from lakehouse.engine.tiers.cold_files import record_name_of, recorded_classes

_SMALL = "it is smaller than 128 KiB"


def move_added(
    lake: Lake, facts: TableFacts, paths: Iterable[str], storage_class: str
) -> ColdMove | None:
    """Moves the files at these `paths` of the log, and records them as cold; `None` on a disk.

    `facts` are the table after the compaction. Files below 128 KiB stay in STANDARD, because
    STANDARD_IA and GLACIER_IR bill them as 128 KiB, and INTELLIGENT_TIERING never moves them to a
    cheaper tier.
    """
    table = facts.snapshot.table
    place = s3_place(lake.store, table)
    if place is None:
        return None
    store, folder = place
    try:
        is_unversioned = store.keeps_versions() is False
    except LakehouseError as error:  # the compaction has committed, so it must not fail here
        return ColdMove(storage_class=storage_class, problem=str(error))
    if not is_unversioned:
        problem = "the bucket has versions, or may have them, so the former copies would stay"
        return ColdMove(storage_class=storage_class, problem=problem)
    names = [*filter(None, map(name_in_table, paths))]

    def move(name: str) -> str:
        """Moves a file; returns why it was not moved, or an empty string."""
        try:
            return _move(store, f"{folder}/{name}", storage_class)
        except FileNotFoundError:
            return "it is gone"
        except LakehouseError as error:
            return str(error)

    with ThreadPoolExecutor(max_workers=READERS) as pool:
        problems = dict(zip(names, pool.map(move, names), strict=True))
    moved = tuple(name for name, problem in problems.items() if not problem)
    with contextlib.suppress(LakehouseError):
        live = {name_in_table(file.path) for file in facts.snapshot.files}
        recorded = recorded_classes(lake, table)
        classes = {name: recorded[name] for name in recorded if name in live}
        classes |= dict.fromkeys(moved, storage_class)
        lake.store.put(record_name_of(table), encoded(classes))
    stayed = [f"{name}: {why}" for name, why in problems.items() if why not in ("", _SMALL)]
    problem = ""
    if stayed:
        problem = f"not moved: {count_of(len(stayed), 'file')}, for example {stayed[0]}"
    return ColdMove(storage_class=storage_class, names=moved, problem=problem)


def _move(store: S3Store, name: str, storage_class: str) -> str:
    file = store.stat(name)
    if file is None:
        return "it is gone"
    if file.size_bytes < MINIMUM_BYTES:
        return _SMALL
    if file.storage_class != storage_class:
        put_storage_class(store, file, storage_class)
    return ""
