"""Past vacuums: `_lakehouse/vacuums/<layer>/<name>/<ms>-<id>.json`, written once, at the end."""

import contextlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from uuid import uuid4

from lakehouse.core.journal_records import VacuumRecord
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
    return _read(store, names)


def recent_vacuums(
    store: Store, *, since_ms: int
) -> dict[str, tuple[int, tuple[VacuumRecord, ...]]]:
    """When the newest vacuum of each table began, and its vacuums that began since a time.

    All tables are listed at once, and older records are not read.
    """
    found = dict[str, tuple[int, tuple[VacuumRecord, ...]]]()
    for table, names in names_by_table(store, _FOLDER).items():
        recent = [name for name in names if recorded_ms(name) >= since_ms]
        found[table] = recorded_ms(names[-1]), _read(store, recent)
    return found


def _read(store: Store, names: Sequence[str]) -> tuple[VacuumRecord, ...]:
    """The records, without damaged ones."""
    records = list[VacuumRecord]()
    for data in store.read_many(names):
        with contextlib.suppress(ValueError, TypeError):
            records.append(VacuumRecord(**json.loads(data)))
    return tuple(records)
