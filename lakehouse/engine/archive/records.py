"""The records of archives: `_lakehouse/archives/<layer>/<name>/<number, 10 digits>.json`.

All records of a table, together with the transaction id in its log (the number of the last applied
operation), define what its archive holds. So a record never changes once its operation is applied.
Months later, when the files of the oldest records have been deleted, one record replaces these
records. It has the name of the newest of them, and the kind `folded`.

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
    """The recorded operations of a table's archive, by number, from the newest folded record on.

    Raises:
        Broken: a record is damaged.
        Transient: records were replaced or withdrawn during each of several reads.
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
    # Four slashes: files in the folder itself, not staged files.
    names = [name for name in listed if name.endswith(".json") and name.count("/") == 4]
    operations = list[ArchiveOperation]()
    for name, data in zip(names, store.read_many(names), strict=True):
        try:
            operation = decode_operation(data)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise damaged(name, error) from error
        if name != _name(table_key, operation.number):
            raise Broken(
                f"journal: {name} contains the record of operation {operation.number}. Restore the"
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
    refuse_undone(_history_with_newest(store, operations, facts))
    applied_ms = {
        each.applications[APP_ID]: each.committed_ms
        for each in facts.history.commits
        if APP_ID in each.applications
    }
    return fold_archive(operations, facts.snapshot, applied_ms)


def _history_with_newest(
    store: Store, operations: Sequence[ArchiveOperation], facts: TableFacts
) -> Commits:
    """The history from the newest applied operation on, or longer.

    `facts` may lack this part, because they contain only the last commits. Earlier commits are not
    needed: the newest operation was planned only after a check that no earlier one was undone.
    """
    snapshot = facts.snapshot
    history = facts.history
    applied = [
        each for each in operations if each.kind != "expire" and each.is_applied_to(snapshot)
    ]
    if not applied or not history.commits:
        return history
    planned_version = applied[-1].version
    if history.commits[0].version <= planned_version + 1:
        return history
    return history_since(store, history, planned_version)


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
    """Replaces all records up to its number by `folded`. The caller holds the table's lock.

    The folded record is written first. Readers ignore the records before it, so the process may be
    killed at any time.
    """
    store.put(_name(table_key, folded.number), encode_operation(folded))
    listed = [file.name for file in store.list(f"{ARCHIVES}/{table_key}")]
    names = {_name(table_key, number) for number in range(1, folded.number)}
    store.delete([name for name in listed if name in names])


def withdraw_unapplied(lake: Lake, facts: TableFacts, contents: ArchiveContents) -> None:
    """Deletes the copies and the record of an unapplied operation that a killed run left.

    The caller holds the table's lock. The record is deleted last, so that a later run completes the
    withdrawal if this run is killed.

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

    An `archive` was not applied if the table still has all its files. Any operation was not applied
    if no commit since its plan has its number. False if neither is certain, for example because the
    log lacks one of these commits.
    """
    if operation.kind == "archive" and operation.files:
        current_paths = {file.path for file in facts.snapshot.files}
        if operation.sources <= current_paths:
            return True
    history = history_since(lake.store, facts.history, operation.version)
    commits = history.between(operation.version, facts.snapshot.version)
    if commits is None:
        return False
    return all(each.applications.get(APP_ID, 0) < operation.number for each in commits)


def staged_folder(table_key: str) -> str:
    """The folder of the rewritten files that an archive run copies into the archive."""
    return f"{ARCHIVES}/{table_key}/staged"


def clear_rewritten(lake: Lake, table_key: str) -> None:
    """Deletes the rewritten files in the staging folder of a table's archive."""
    folder = staged_folder(table_key)
    lake.store.delete([file.name for file in lake.store.list(folder)])
    lake.store.remove_empty_folders(folder)


def expect_commit(store: Store, table_key: str, operation: ArchiveOperation, version: int) -> None:
    """Records that the operation's commit, which will follow `version`, must be verified."""
    content = {"number": operation.number, "version": version}
    store.put(_unverified(table_key), encoded(content))


def expected_commit(store: Store, table_key: str) -> tuple[int, int] | None:
    """The number of the operation whose commit must be verified, and the version before the commit.

    `None` if no commit has to be verified.
    """
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
    """Why a table cannot be rebuilt or moved; an empty string if nothing of it is archived."""
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
