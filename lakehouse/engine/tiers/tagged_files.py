"""Records of tagged files: `_lakehouse/tiers/<layer>/<name>/<ms>-<id>.json`.

Each `apply` run that has files to tag or untag writes one record. The record is written before the
files are tagged, so it names all files that the run may tag or untag. At the end of the run, it is
replaced by what was done.

The newest 100 records of each table are kept. A file that only an older record names is not found
by `tagged_yet_needed`: if a RESTORE brings it back, it keeps its tag, and S3 may move it. If S3
moves it into a class that requires a restore, the check `readable` fails.
"""

import contextlib
import json
from collections.abc import Callable
from dataclasses import asdict
from uuid import uuid4

from lakehouse.core.tiers.lifecycle_rules import TIER_TAG
from lakehouse.core.tiers.plan import TierRecord
from lakehouse.engine.journal.records import append_record, names_by_table
from lakehouse.engine.store import Store
from lakehouse.engine.store.s3_objects import s3_place, tags_of

_FOLDER = "_lakehouse/tiers"
_KEPT_COUNT = 100


def record_name(started_ms: int) -> str:
    """A new name for the record of a run."""
    return f"{started_ms:015}-{uuid4().hex}.json"


def record_tiers(store: Store, table_key: str, name: str, record: TierRecord) -> None:
    """Writes or replaces the record of a run."""
    append_record(store, f"{_FOLDER}/{table_key}", name, asdict(record), kept_count=_KEPT_COUNT)


def tier_records(store: Store, table_key: str) -> tuple[TierRecord, ...]:
    """The kept records of a table, oldest first; damaged records are omitted."""
    names = names_by_table(store, _FOLDER, table_key).get(table_key, [])
    records = list[TierRecord]()
    for data in store.read_many(names):
        with contextlib.suppress(ValueError, TypeError):
            records.append(TierRecord(**json.loads(data)))
    return tuple(records)


def tagged_before(store: Store, table_key: str) -> dict[str, str]:
    """The files that a complete run tagged, with their target class, according to the records.

    A file that a later run untagged is omitted, unless it was tagged again.
    """
    tagged = dict[str, str]()
    for record in tier_records(store, table_key):
        for name in record.untagged:
            tagged.pop(name, None)
        if record.is_complete:
            tagged |= dict.fromkeys(record.tagged, record.storage_class)
    return tagged


def tagged_yet_needed(
    store: Store, table_key: str, is_needed: Callable[[str], bool]
) -> dict[str, str]:
    """The needed files that still have the tag `TIER_TAG`, by name, with the tag's value.

    These files are needed because a RESTORE of the table brought them back, or because another
    table reads them or may read them. Only files in the kept records are checked.

    Raises:
        Refused: a permission is missing.
    """
    recorded_names = set[str]()
    for record in tier_records(store, table_key):
        recorded_names.update(record.tagged)
    tagged = dict[str, str]()
    for name in sorted(filter(is_needed, recorded_names)):
        place = s3_place(store, f"{table_key}/{name}")
        if place is None:
            continue
        with contextlib.suppress(FileNotFoundError):
            value = tags_of(*place).get(TIER_TAG)
            if value is not None:
                tagged[name] = value
    return tagged
