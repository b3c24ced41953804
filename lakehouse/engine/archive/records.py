"""The records of archives: `_lakehouse/archives/<layer>/<name>/<number, 10 digits>.json`.

A record is never changed once its operation is applied, and is kept for good: together with the
table's transaction id, all of a table's records say what its archive holds.
"""

from collections.abc import Iterable

from lakehouse.core.archive.contents import ArchiveContents, fold_archive, refuse_undone
from lakehouse.core.archive.records import (
    APP_ID,
    ArchiveOperation,
    decode_operation,
    encode_operation,
)
from lakehouse.core.delta.snapshot import TableFacts
from lakehouse.core.errors import Broken, Refused
from lakehouse.engine.journal.records import damaged
from lakehouse.engine.lake import Lake
from lakehouse.engine.store import Store

ARCHIVES = "_lakehouse/archives"


def archive_operations(store: Store, table_key: str) -> tuple[ArchiveOperation, ...]:
    """All recorded operations of a table's archive, by number.

    Raises:
        Broken: a record is damaged.
    """
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
    return tuple(operations)


def archive_contents(lake: Lake, facts: TableFacts) -> ArchiveContents:
    """What a table's archive holds, as of the version in `facts`.

    Read the facts first: then every operation that is part of this version has a record.
    """
    return contents_of(archive_operations(lake.store, facts.snapshot.table), facts)


def contents_of(operations: Iterable[ArchiveOperation], facts: TableFacts) -> ArchiveContents:
    """As `archive_contents`, from all recorded operations."""
    refuse_undone(facts.history)
    return fold_archive(operations, facts.snapshot)


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


def withdraw_operation(store: Store, table_key: str, operation: ArchiveOperation) -> None:
    """Deletes the record of an operation that is not applied. The caller holds the table's lock."""
    store.delete([_name(table_key, operation.number)])


def refuse_archived(lake: Lake, facts: TableFacts, *, asked: str) -> None:
    """Refuses an operation, named by `asked`, that would separate a table from its archive."""
    if not facts.snapshot.transactions.get(APP_ID):
        return
    contents = archive_contents(lake, facts)
    if contents.partitions or contents.unapplied is not None:
        key = facts.snapshot.table
        raise Refused(
            f"{asked}: partitions of {key} are in its archive, and would not be part of the result."
            f" Use `lakehouse archive restore {key} --into-source` first"
        )


def _name(table_key: str, number: int) -> str:
    return f"{ARCHIVES}/{table_key}/{number:010}.json"
