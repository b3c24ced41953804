"""The records of archives: `_lakehouse/archives/<layer>/<name>/<number, 10 digits>.json`.

All records of a table, together with the transaction in its log, define what its archive holds. So
a record never changes once its operation is applied. Months later, when the files of the oldest
records are deleted, these records are folded into one, which gets the name of the newest of them.

The file `unverified` next to the records names the operation whose commit must still be compared
with its record. It is written before the commit, and deleted after the comparison.
"""

import json
from collections.abc import Sequence
from contextlib import suppress

from lakehouse.core.archive.contents import ArchiveContents, fold_archive, refuse_undone
from lakehouse.core.archive.records import (
    APP_ID,
    ArchiveOperation,
    decode_operation,
    encode_operation,
)
from lakehouse.core.delta.commits import Commits
from lakehouse.core.delta.snapshot import TableFacts
from lakehouse.core.errors import Broken, Transient
from lakehouse.engine.delta_log import history_since
from lakehouse.engine.journal.records import damaged, encoded
from lakehouse.engine.lake import Lake
from lakehouse.engine.store import Store

ARCHIVES = "_lakehouse/archives"
_READS = 3


def archive_operations(store: Store, table_key: str) -> tuple[ArchiveOperation, ...]:
    """All recorded operations of a table's archive, by number, from the newest folded one on.

    Raises:
        Broken: a record is damaged.
    """
    for _ in range(_READS):
        with suppress(FileNotFoundError):  # a listed record was folded or withdrawn meanwhile
            operations = _read_operations(store, table_key)
            folded = [each.number for each in operations if each.kind == "folded"]
            return tuple(each for each in operations if each.number >= max(folded, default=0))
    raise Transient(
        f"archive of {table_key}: its records are being replaced. Use the same command again"
    )


def _read_operations(store: Store, table_key: str) -> list[ArchiveOperation]:
    listed = [file.name for file in store.list(f"{ARCHIVES}/{table_key}")]
    names = [name for name in listed if name.endswith(".json") and name.count("/") == 4]
    operations = list[ArchiveOperation]()
    for name, data in zip(names, store.read_many(names), strict=True):
        try:
            operation = decode_operation(data)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise damaged(name, error) from error
        if name != _name(table_key, operation.number):
            raise Broken(
                f"journal: {name} holds the record of operation {operation.number}. Restore the"
                " file from a copy of the lake"
            )
        operations.append(operation)
    return operations


def archive_contents(lake: Lake, facts: TableFacts) -> ArchiveContents:
    """What a table's archive holds, as of the version in `facts`.

    Records are read after `facts`, so every operation that is part of this version has a record.
    """
    operations = archive_operations(lake.store, facts.snapshot.table)
    return contents_of(lake.store, operations, facts)


def contents_of(
    store: Store, operations: Sequence[ArchiveOperation], facts: TableFacts
) -> ArchiveContents:
    """Like `archive_contents`, from all recorded operations."""
    refuse_undone(_with_newest(store, operations, facts))
    applied_ms = {
        each.applications[APP_ID]: each.committed_ms
        for each in facts.history.commits
        if APP_ID in each.applications
    }
    return fold_archive(operations, facts.snapshot, applied_ms)


def _with_newest(
    store: Store, operations: Sequence[ArchiveOperation], facts: TableFacts
) -> Commits:
    """The history from the newest applied operation on, or longer.

    `facts` may lack this part, because they have only the last commits. Earlier commits are not
    needed: before the newest operation was planned, no earlier operation was undone.
    """
    snapshot = facts.snapshot
    history = facts.history
    applied = [
        each.version
        for each in operations
        if each.kind != "expire" and each.is_applied_to(snapshot)
    ]
    if not applied or not history.commits or history.commits[0].version <= applied[-1] + 1:
        return history
    return history_since(store, history, applied[-1])


def record_operation(store: Store, table_key: str, operation: ArchiveOperation) -> None:
    """Records an operation. The caller holds the table's lock.

    Raises:
        Broken: there is a record of this number.
    """
    name = _name(table_key, operation.number)
    if not store.put_if_absent(name, encode_operation(operation)):
        raise Broken(
            f"archive of {table_key}: {name} was written by another process while this one held"
            " the table's lock. Make sure that only one driver maintains this lake"
        )


def replace_by(store: Store, table_key: str, folded: ArchiveOperation) -> None:
    """Replaces all records up to the number of `folded`. The caller holds the table's lock.

    The folded record is written first. Readers ignore the records before it, so the process may be
    killed at any time.
    """
    store.put(_name(table_key, folded.number), encode_operation(folded))
    listed = [file.name for file in store.list(f"{ARCHIVES}/{table_key}")]
    names = {_name(table_key, number) for number in range(1, folded.number)}
    store.delete([name for name in listed if name in names])


def withdraw_unapplied(lake: Lake, facts: TableFacts, contents: ArchiveContents) -> None:
    """Deletes the copies and the record of an unapplied operation that a killed run left.

    The caller holds the table's lock. The record is deleted last, so that a later run repeats a
    withdrawal that was killed.

    Raises:
        Broken: the log does not prove that the operation was not applied.
    """
    operation = contents.unapplied
    table_key = facts.snapshot.table
    if operation is None:
        return
    if not _is_surely_unapplied(lake, facts, operation):
        rows = "still has all" if operation.kind == "archive" else "has none"
        raise Broken(
            f"archive of {table_key}: its log does not say whether operation {operation.number} was"
            " applied, so the operation's record and files are kept. Compare the table with the"
            f" archived files that {_name(table_key, operation.number)} names. Delete this record"
            f" only if the table {rows} of their rows"
        )
    if operation.kind == "archive":
        in_use = {file.archived for each in contents.partitions for file in each.files}
        lake.store.delete(sorted({file.archived for file in operation.files} - in_use))
        clear_rewritten(lake, table_key)
    lake.store.delete([_name(table_key, operation.number)])


def _is_surely_unapplied(lake: Lake, facts: TableFacts, operation: ArchiveOperation) -> bool:
    """Whether the log proves that no commit applied the operation.

    An `archive` was not applied if the table still has all its files. Otherwise, no commit since
    the operation was planned may carry its number. False if the log lacks one of these commits.
    """
    if operation.kind == "archive" and operation.files:
        live = {file.path for file in facts.snapshot.files}
        if operation.sources <= live:
            return True
    history = history_since(lake.store, facts.history, operation.version)
    commits = history.between(operation.version, facts.snapshot.version)
    return commits is not None and not any(
        each.applications.get(APP_ID, 0) >= operation.number for each in commits
    )


def staged_folder(table_key: str) -> str:
    """The folder of rewritten rows that have yet to be copied into the archive."""
    return f"{ARCHIVES}/{table_key}/staged"


def clear_rewritten(lake: Lake, table_key: str) -> None:
    """Deletes the rewritten rows in the staging folder of a table's archive."""
    folder = staged_folder(table_key)
    lake.store.delete([file.name for file in lake.store.list(folder)])
    lake.store.remove_empty_folders(folder)


def expect_commit(store: Store, table_key: str, operation: ArchiveOperation, version: int) -> None:
    """Records that the operation's commit, after `version`, must be verified."""
    content = {"number": operation.number, "version": version}
    store.put(_unverified(table_key), encoded(content))


def expected_commit(store: Store, table_key: str) -> tuple[int, int] | None:
    """The number of the operation whose commit must be verified, and the version before it."""
    try:
        content = json.loads(store.read(_unverified(table_key)))
        return int(content["number"]), int(content["version"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(_unverified(table_key), error) from error


def settle_commit(store: Store, table_key: str) -> None:
    """Records that no commit of the table's archive has to be verified."""
    store.delete([_unverified(table_key)])


def why_archived(lake: Lake, facts: TableFacts) -> str:
    """Why a table with archived partitions cannot be rebuilt or moved; empty if it has none."""
    if not facts.snapshot.transactions.get(APP_ID):
        return ""
    contents = archive_contents(lake, facts)
    if not contents.partitions and contents.unapplied is None:
        return ""
    key = facts.snapshot.table
    return (
        f"partitions of {key} are in its archive, and would not be part of the result. Use"
        f" `lakehouse archive restore {key} --into-source` first"
    )


def _unverified(table_key: str) -> str:
    return f"{ARCHIVES}/{table_key}/unverified"


def _name(table_key: str, number: int) -> str:
    return f"{ARCHIVES}/{table_key}/{number:010}.json"
