"""Lists the objects that a move copies: every object that the lake keeps under a table's key.

A log is copied and deleted in two parts. Its start has the files that every reader needs first: the
files of version 0, and the checkpoints. The start is copied last and deleted first, so that a
reader of either key finds no table at all or the complete table, but never an older version.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

from lakehouse.core.declaration.landing import retried_folder
from lakehouse.core.declaration.table import Table
from lakehouse.core.ingest.batches import fingerprint
from lakehouse.engine.ingest.quarantine.entries import quarantine_key
from lakehouse.engine.journal.planned_batches import PlannedBatches
from lakehouse.engine.lake import Lake
from lakehouse.engine.store import StoredFile

# The kind of the table's data files, which no writer ever replaces.
DATA_FILES = "data files"
_START = re.compile(r"\d{20}\.checkpoint\..*|0{20}\..*")
# Folders below `_lakehouse/` that have a subfolder for each table, and the kind of its objects.
_FOLDERS = {
    "ingest": "landed batches",
    "staged": "staged batches",
    "deleted_keys": "deleted keys",
    "rebuilds": "staged rows of a rebuild",
    "vacuums": "records of upkeep",
    "tries": "records of upkeep",
    "probes": "records of upkeep",
    # Only the records. Archived files stay in place, because the records hold their full addresses.
    "archives": "records of upkeep",
}
# Single objects below `_lakehouse/` for each table.
_RECORDS = ("pauses/{key}.json", "unverified/{key}.json", "retired/{key}")


class Stage(IntEnum):
    """The stage in which an object is copied. The deletion has the opposite order."""

    FILES = 0
    LOG = 1
    QUARANTINE_START = 2
    LOG_START = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class MovingFile:
    """An object of the old key as it was listed, and the name (`target`) of its copy."""

    source: StoredFile
    target: str
    kind: str
    stage: Stage


def moving_files(
    lake: Lake, table: Table, old_key: str, *, is_copied: bool
) -> Iterator[MovingFile]:
    """Every object that is now under a table's old key.

    Archived files, and loaded files of retried lines, stay. With `is_copied`, the new key has a
    copy of everything. The old ledger may already be deleted in part, so the new one is read.
    """
    new_key = table.key
    yield from _table_files(lake, old_key, new_key, Stage.LOG_START)
    old_quarantine = quarantine_key(old_key)
    new_quarantine = quarantine_key(new_key)
    yield from _table_files(lake, old_quarantine, new_quarantine, Stage.QUARANTINE_START)
    for folder, kind in _FOLDERS.items():
        old = f"_lakehouse/{folder}/{old_key}"
        new = f"_lakehouse/{folder}/{new_key}"
        for file in lake.store.list(old):
            target = new + file.name.removeprefix(old)
            yield MovingFile(source=file, target=target, kind=kind, stage=Stage.FILES)
    for name in _RECORDS:
        file = lake.store.stat("_lakehouse/" + name.format(key=old_key))
        if file is not None:
            target = "_lakehouse/" + name.format(key=new_key)
            kind = "records of upkeep"
            yield MovingFile(source=file, target=target, kind=kind, stage=Stage.FILES)
    ledger_key = new_key if is_copied else old_key
    yield from _retried_lines(lake, table, old_key, ledger_key=ledger_key)


def folders_of(key: str) -> list[str]:
    """The folders that contain only objects of this key."""
    return [key, quarantine_key(key), *(f"_lakehouse/{folder}/{key}" for folder in _FOLDERS)]


def targets(lake: Lake, table: Table) -> Mapping[str, StoredFile]:
    """Every object under the new key that a move may have copied, by name."""
    files = [file for folder in folders_of(table.key) for file in lake.store.list(folder)]
    if table.source is not None:
        files += lake.store.list(f"{table.source.prefix}{retried_folder(table.key)}")
    for name in _RECORDS:
        file = lake.store.stat("_lakehouse/" + name.format(key=table.key))
        if file is not None:
            files.append(file)
    return {file.name: file for file in files}


def is_commit_of_log(name: str) -> bool:
    """Whether an object is a commit, which no writer ever replaces."""
    return re.search(r"/_delta_log/\d{20}\.json$", name) is not None


def _table_files(lake: Lake, old: str, new: str, start: Stage) -> Iterator[MovingFile]:
    """The objects in the folder `old`. `start` is the stage in which the log's start is copied."""
    for file in lake.store.list(old):
        name = file.name.removeprefix(f"{old}/")
        folder, _, name_in_log = name.partition("/")
        stage = Stage.FILES
        if folder == "_delta_log":
            # A checksum file of Hadoop, `.<name>.crc`, belongs to the stage of its file.
            stage = start if _START.fullmatch(name_in_log.lstrip(".")) else Stage.LOG
        kind = DATA_FILES if stage is Stage.FILES else "log"
        if start is Stage.QUARANTINE_START:
            kind = "quarantine"
        yield MovingFile(source=file, target=f"{new}/{name}", kind=kind, stage=stage)


def _retried_lines(
    lake: Lake, table: Table, old_key: str, *, ledger_key: str
) -> Iterator[MovingFile]:
    """The files of retried lines that are in no batch yet.

    The table loads only files of retried lines with its own key in their name, so they are renamed.
    Loaded files are not moved, because the ledger records their names.
    """
    if table.source is None:
        return
    prefix = table.source.prefix
    old = prefix + retried_folder(old_key)
    new = prefix + retried_folder(table.key)
    files = lake.store.list(old)
    if not files:
        return
    ledger = PlannedBatches(lake.store, ledger_key, prefix=prefix).ledger()
    for file in files:
        if file.name not in ledger.seen and fingerprint(file.name) not in ledger.forgotten:
            target = new + file.name.removeprefix(old)
            yield MovingFile(source=file, target=target, kind="retried lines", stage=Stage.FILES)
