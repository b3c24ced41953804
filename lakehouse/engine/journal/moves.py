"""Records of moves of tables to new keys: `_lakehouse/moves/<new key>.json`.

A record is written before the first object is copied, and deleted after the last old object was
deleted. If the old folder is kept, the record is kept, too, because nothing else shows that the
move is finished.
"""

import json
from dataclasses import asdict

from lakehouse.core.declaration.table import Table
from lakehouse.core.errors import Refused
from lakehouse.core.evolution.move_facts import MoveRecord
from lakehouse.engine.journal.records import damaged, encoded
from lakehouse.engine.store import Store

_FOLDER = "_lakehouse/moves"


def move_record(store: Store, table: Table) -> MoveRecord | None:
    """The record of a table's move to its key; `None` if no such move has begun.

    A finished move from a key other than `formerly` does not count.

    Raises:
        Broken: the record is damaged.
    """
    name = _name(table.key)
    try:
        record = MoveRecord(**json.loads(store.read(name)))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise damaged(name, error) from error
    if record.is_finished and record.old_key != table.formerly:
        return None
    return record


def record_move(store: Store, record: MoveRecord) -> None:
    """Writes or replaces the record of a move."""
    store.put(_name(record.new_key), encoded(asdict(record)))


def forget_move(store: Store, new_key: str) -> None:
    """Deletes the record of a finished move."""
    store.delete([_name(new_key)])


def refuse_unmoved(store: Store, table: Table) -> None:
    """Raises `Refused` if the table was not yet moved from its earlier key.

    A write would create a second table, and load all landed files into it.
    """
    why = why_unmoved(store, table)
    if why:
        raise Refused(f"write of {table.key}: {why}")


def why_unmoved(store: Store, table: Table) -> str:
    """Why the table must first move from its earlier key; empty if it need not move."""
    if table.formerly is None:
        return ""
    record = move_record(store, table)
    if record is not None and record.is_finished:
        return ""
    if record is None and not store.list(f"{table.formerly}/_delta_log"):
        return ""
    return (
        f"its rows are at its earlier key {table.formerly} and have not moved yet. Use"
        f" `lakehouse evolve apply {table.key}`"
    )


def _name(new_key: str) -> str:
    return f"{_FOLDER}/{new_key}.json"
