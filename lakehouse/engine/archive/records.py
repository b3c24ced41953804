"""The records of archives: `_lakehouse/archives/<layer>/<name>/<number, 10 digits>.json`.

A record is never changed once its operation is applied: together with the table's transaction id,
all of a table's records say what its archive holds. Months after the last of their files are gone,
the oldest records are folded into one, which takes the name of the newest of them.

A file `unverified` next to them names the operation whose commit has yet to be compared with its
record. It is written before the commit, and deleted with the comparison.
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
    """All recorded operations of a table's archive, by number; those that were folded as one.

    Raises:
        Broken: a record is damaged.
    """
    for _ in range(_READS):
        with suppress(FileNotFoundError):  # folded, or withdrawn, since they were listed
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

    Read the facts first: then every operation that is part of this version has a record.
    """
    operations = archive_operations(lake.store, facts.snapshot.table)
    return contents_of(lake.store, operations, facts)


def contents_of(
    store: Store, operations: Sequence[ArchiveOperation], facts: TableFacts
) -> ArchiveContents:
    """As `archive_contents`, from all recorded operations."""
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
    """The history, at least since the newest applied operation: facts hold the last commits only.

    What undid an earlier operation was found before the newest one was planned.
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
            " the table's lock. Make sure that one driver alone maintains this lake"
        )


def replace_by(store: Store, table_key: str, folded: ArchiveOperation) -> None:
    """Replaces all records up to that of `folded` by it. The caller holds the table's lock.

    It is written first. A reader ignores records before it, so this may be killed at any time.
    """
    store.put(_name(table_key, folded.number), encode_operation(folded))
    listed = [file.name for file in store.list(f"{ARCHIVES}/{table_key}")]
    names = {_name(table_key, number) for number in range(1, folded.number)}
    store.delete([name for name in listed if name in names])


def withdraw_unapplied(lake: Lake, facts: TableFacts, contents: ArchiveContents) -> None:
    """Deletes what a killed run left of an operation that is not applied. The lock is held.

    The copies go first, and the record last, so that this is repeated if it is killed.

    Raises:
        Broken: the log does not prove that the operation is not applied.
    """
    operation = contents.unapplied
    table_key = facts.snapshot.table
    if operation is None:
        return
    if not _is_surely_unapplied(lake, facts, operation):
        raise Broken(
            f"archive of {table_key}: its log does not say whether operation {operation.number} was"
            " applied, so the copies of its files are kept. Compare table and archive, and delete"
            f" {_name(table_key, operation.number)} only if the table still has these rows"
        )
    if operation.kind == "archive":
        in_use = {file.archived for each in contents.partitions for file in each.files}
        lake.store.delete(sorted({file.archived for file in operation.files} - in_use))
        clear_rewritten(lake, table_key)
    lake.store.delete([_name(table_key, operation.number)])


def _is_surely_unapplied(lake: Lake, facts: TableFacts, operation: ArchiveOperation) -> bool:
    """Whether no commit since the operation was planned carries its number.

    A log may forget transaction ids, and old commits. If all files of a move are still in the
    table, it was not applied, either.
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
    """Where rows that were written again wait until they are copied into the archive."""
    return f"{ARCHIVES}/{table_key}/staged"


def clear_rewritten(lake: Lake, table_key: str) -> None:
    """Deletes the files that were written again for a table's archive."""
    folder = staged_folder(table_key)
    lake.store.delete([file.name for file in lake.store.list(folder)])
    lake.store.remove_empty_folders(folder)


def expect_commit(store: Store, table_key: str, operation: ArchiveOperation, version: int) -> None:
    """Records that the operation's commit, after `version`, must be verified."""
    note = {"number": operation.number, "version": version}
    store.put(_note(table_key), encoded(note))


def expected_commit(store: Store, table_key: str) -> tuple[int, int] | None:
    """The operation whose commit must be verified, and the version before that commit."""
    try:
        note = json.loads(store.read(_note(table_key)))
        return int(note["number"]), int(note["version"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(_note(table_key), error) from error


def settle_commit(store: Store, table_key: str) -> None:
    """Records that no commit of the table's archive has to be verified."""
    store.delete([_note(table_key)])


def why_archived(lake: Lake, facts: TableFacts) -> str:
    """Why a table cannot be written again, or moved: it has an archive. Empty if it has none."""
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


def _note(table_key: str) -> str:
    return f"{ARCHIVES}/{table_key}/unverified"


def _name(table_key: str, number: int) -> str:
    return f"{ARCHIVES}/{table_key}/{number:010}.json"
