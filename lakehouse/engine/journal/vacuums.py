"""Past vacuums: `_lakehouse/vacuums/<layer>/<name>/<ms>-<id>.json`, written once, at the end."""

import contextlib
import json
from dataclasses import asdict
from uuid import uuid4

from lakehouse.core.vacuum.facts import VacuumRecord
from lakehouse.engine.journal.records import append_record, names_by_table, recorded_ms
from lakehouse.engine.store import Store

_FOLDER = "_lakehouse/vacuums"
# The older half is kept only for people.
_KEPT_COUNT = 100
# Must reach back to the last sweep (any vacuum but LITE). A table that is vacuumed after each
# compaction has a few records between two sweeps.
_READ_COUNT = 50


def record_vacuum(store: Store, table_key: str, record: VacuumRecord) -> None:
    """Records a vacuum that has ended, successfully or not."""
    name = f"{record.started_ms:015}-{uuid4().hex}.json"
    append_record(store, f"{_FOLDER}/{table_key}", name, asdict(record), kept_count=_KEPT_COUNT)


def vacuum_records(store: Store, table_key: str) -> tuple[VacuumRecord, ...]:
    """The newest vacuums of a table, oldest first.

    Damaged records are omitted, after which the next vacuum lists storage again.
    """
    names = names_by_table(store, _FOLDER, table_key).get(table_key, [])[-_READ_COUNT:]
    records = list[VacuumRecord]()
    for data in store.read_many(names):
        with contextlib.suppress(ValueError, TypeError):
            records.append(VacuumRecord(**json.loads(data)))
    return tuple(records)


def last_vacuums_ms(store: Store) -> dict[str, int]:
    """When the newest vacuum of each table began, from one listing."""
    names = names_by_table(store, _FOLDER)
    return {table: recorded_ms(of_table[-1]) for table, of_table in names.items()}
