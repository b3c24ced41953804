"""The journal: records that the Delta log cannot hold, as small objects below `_lakehouse/`.

- Batch manifests and segments: `_lakehouse/ingest/` (`land/ledger.py`).
- Leases on tables: `_lakehouse/locks/` (`lake/lease.py`).
- Vacuums: `_lakehouse/vacuums/<layer>/<name>/<ms>-<id>.json`, written once, when the vacuum ends.
- Records of `maintain` calls: `_lakehouse/maintained/` (`lake/declared_tables.py`).
- Pauses: `_lakehouse/pauses/<layer>/<name>.json`, deleted when the table is resumed.
- Tries: `_lakehouse/tries/<layer>/<name>/<ms>-<id>.json`, for compactions that failed or conflicted
  with another writer's commit.
- The newest report page: `_lakehouse/reports/report.html` (`report/run.py`).
- Change marker: `_lakehouse/changes/<id>`. Each change to a pause or try replaces it with a
  marker under a new id, so that one listing shows whether a cache is stale.

The newest tries and vacuums of each table are kept (`FAILURES_KEPT`, `_VACUUMS_KEPT`).
"""

import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any
from uuid import uuid4

from lakehouse.base.errors import Broken
from lakehouse.declare.journal_records import FAILURES_KEPT, CompactionTry, Pause, VacuumRecord
from lakehouse.store import Store, StoredFile

# Matches the journal's own records, but not files that a person adds.
_RECORD_NAME = re.compile(r"/\d{15}-[0-9a-f]+\.json$")


def encoded(content: Mapping[str, Any]) -> bytes:
    """A record's content as the journal stores it."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "surrogatepass"
    )


def damaged(name: str, error: Exception) -> Broken:
    """The error for a record that cannot be read."""
    return Broken(
        f"journal: {name} cannot be read ({type(error).__name__}: {error}); "
        "restore it from a copy of the lake"
    )


def append_record(
    store: Store, folder: str, name: str, content: Mapping[str, Any], *, kept_count: int
) -> None:
    """Adds a record to a table's folder, for example `_lakehouse/tries/gold/daily`.

    Keeps the newest `kept_count` records in the folder, and deletes the others.
    """
    store.put(f"{folder}/{name}", encoded(content))
    kind, layer, table = folder.rsplit("/", 2)
    table_key = f"{layer}/{table}"
    names = names_by_table(store, kind, table_key).get(table_key, [])
    store.delete(names[:-kept_count])


def names_by_table(
    store: "Store | JournalCache", kind: str, table_key: str = ""
) -> dict[str, list[str]]:
    """The names of all records of one kind, by table, oldest first; only of `table_key`, if given.

    `kind` is a folder, for example `_lakehouse/tries`.
    """
    folder = f"{kind}/{table_key}".removesuffix("/")
    names = sorted(file.name for file in store.list(folder) if _RECORD_NAME.search(file.name))
    by_table = dict[str, list[str]]()
    for name in names:
        table = name.removeprefix(f"{kind}/").rpartition("/")[0]
        by_table.setdefault(table, []).append(name)
    return by_table


def recorded_ms(name: str) -> int:
    """The time in a record's name."""
    return int(name.rpartition("/")[2][:15])


PAUSES = "_lakehouse/pauses"
TRIES = "_lakehouse/tries"
CHANGES = "_lakehouse/changes"
# The number of tries that the circuit breaker reads. The breaker opens after fewer failures in a
# row.
_TRIES_READ = 20
_VACUUMS = "_lakehouse/vacuums"
# `vacuum_records` reads the newer half of these records, and `recent_vacuums` may read all.
_VACUUMS_KEPT = 100
# Should include the last vacuum that searched storage (mode INVENTORY or FULL), because its time
# decides whether a new search is due. Otherwise, the next vacuum searches early, which is safe.
_VACUUMS_READ = 50

Tries = tuple[CompactionTry, ...]


class JournalCache:
    """The pauses and tries of all tables, kept in memory between two ticks.

    1. One listing of the marker shows whether a record has changed since the last refresh.
    2. If it has, or if the last sweep is `sweep_ms` old, a sweep lists both folders. Otherwise, the
       listing of the marker is the only request.
    3. A record is read when it is requested, and again only if its size or time changed. A pause is
       also read again after each sweep.

    A sweep also finds records without a marker, which were written by a person, or by a process
    that died before it wrote the marker.
    """

    def __init__(self, store: Store, *, sweep_ms: int) -> None:
        self._store = store
        self._sweep_ms = sweep_ms
        self._markers: list[str] | None = None
        self._swept_ms = 0
        self._files: dict[str, StoredFile] = {}
        self._contents: dict[StoredFile, bytes] = {}

    def refresh(self, now_ms: int) -> None:
        """Sweeps in the first call, if the marker changed, and `sweep_ms` after the last sweep."""
        markers = [file.name for file in self._store.list(CHANGES)]
        if markers == self._markers and now_ms - self._swept_ms < self._sweep_ms:
            return
        # The markers are listed before the records, so that no change is lost: if a record is
        # written after this listing, its marker is written later still, and the next call sees it.
        self._files = {
            file.name: file for kind in (PAUSES, TRIES) for file in self._store.list(kind)
        }
        # S3 lists times in seconds. A pause that replaced another one within the same second may
        # also have the same size, so pauses are always read again.
        kept = [
            file
            for file in self._files.values()
            if file in self._contents and not file.name.startswith(PAUSES)
        ]
        self._contents = {file: self._contents[file] for file in kept}
        self._markers = markers
        self._swept_ms = now_ms

    def list(self, prefix: str) -> list[StoredFile]:
        """See `Store.list`. The files are those of the last sweep."""
        return [file for name, file in self._files.items() if name.startswith(f"{prefix}/")]

    def read_many(self, names: Sequence[str]) -> Iterator[bytes]:
        """See `Store.read_many`. Only files that are not in memory are read."""
        files = [self._files[name] for name in names]
        unread = [file for file in files if file not in self._contents]
        contents = self._store.read_many([file.name for file in unread])
        self._contents.update(zip(unread, contents, strict=True))
        return (self._contents[file] for file in files)


# The source from which the journal's records are read.
RecordSource = Store | JournalCache


class Journal:
    """The journal of one lake. Pauses and tries are read from `source`, which may be a cache."""

    def __init__(self, store: Store, source: RecordSource | None = None) -> None:
        self._store = store
        self._source = source or store

    def pause(self, pause: Pause) -> None:
        """Records a pause, replacing an earlier one."""
        content = asdict(pause)
        del content["table"]
        self._store.put(_name(PAUSES, pause.table), encoded(content))
        self.mark_changed()

    def resume(self, table_key: str) -> None:
        """Deletes the pause of a table."""
        self._store.delete([_name(PAUSES, table_key)])
        self.mark_changed()

    def pauses(self) -> dict[str, Pause]:
        """Every pause by its table, including expired pauses.

        A damaged record counts as a pause without an end, because its facts are unknown.
        """
        names = [file.name for file in self._source.list(PAUSES)]
        contents = self._source.read_many(names)
        pauses = [_pause(name, data) for name, data in zip(names, contents, strict=True)]
        return {pause.table: pause for pause in pauses}

    def pause_of(self, table_key: str) -> Pause | None:
        """The pause of one table, even if expired. Not read from the cache."""
        name = _name(PAUSES, table_key)
        with contextlib.suppress(FileNotFoundError):
            return _pause(name, self._store.read(name))
        return None

    def record_try(self, table_key: str, attempt: CompactionTry) -> None:
        """Records a compaction that did not succeed."""
        name = f"{attempt.ended_ms:015}-{uuid4().hex}.json"
        self._record(TRIES, table_key, name, asdict(attempt))

    def tries(self, table_key: str, *, newest: int = _TRIES_READ) -> Tries:
        """The last `newest` tries of a table, oldest first; a damaged record counts as failed."""
        names = names_by_table(self._source, TRIES, table_key).get(table_key, [])
        return self._read_tries({table_key: names[-newest:]}).get(table_key, ())

    def tries_since(self, succeeded_ms: Mapping[str, int]) -> dict[str, Tries]:
        """By table: the newest tries, oldest first, that ended after its time in `succeeded_ms`.

        For a table that is not in `succeeded_ms`, tries of any time are read.
        """
        newest_names = dict[str, list[str]]()
        for key, names in names_by_table(self._source, TRIES).items():
            later = [name for name in names if recorded_ms(name) > succeeded_ms.get(key, -1)]
            newest_names[key] = later[-_TRIES_READ:]
        return self._read_tries(newest_names)

    def _read_tries(self, names_by_key: Mapping[str, Sequence[str]]) -> dict[str, Tries]:
        """Reads the tries of several tables at once. Tables without a try are omitted."""
        all_names = [name for names in names_by_key.values() for name in names]
        contents = dict(zip(all_names, self._source.read_many(all_names), strict=True))
        return {
            key: tuple(_try(name, contents[name]) for name in names)
            for key, names in names_by_key.items()
            if names
        }

    def _record(self, kind: str, table_key: str, name: str, content: Mapping[str, Any]) -> None:
        folder = f"{kind}/{table_key}"
        append_record(self._store, folder, name, content, kept_count=FAILURES_KEPT)
        self.mark_changed()

    def mark_changed(self) -> None:
        """Replaces the marker, so that each cache lists the records again in its next refresh."""
        older = [file.name for file in self._store.list(CHANGES)]
        self._store.put(f"{CHANGES}/{uuid4().hex}", b"")
        self._store.delete(older)


def _name(kind: str, table_key: str) -> str:
    return f"{kind}/{table_key}.json"


def _pause(name: str, data: bytes) -> Pause:
    table = name.removeprefix(f"{PAUSES}/").removesuffix(".json")
    try:
        content = json.loads(data)
        until_ms = content["until_ms"]
        ends_ms = None if until_ms is None else int(until_ms)
        return Pause(
            table=table,
            since_ms=int(content["since_ms"]),
            until_ms=ends_ms,
            why=str(content["why"]),
        )
    except (ValueError, TypeError, KeyError) as error:
        return Pause(table=table, since_ms=0, why=f"{name} cannot be read ({type(error).__name__})")


def _try(name: str, data: bytes) -> CompactionTry:
    try:
        return CompactionTry(**json.loads(data))
    except (ValueError, TypeError) as error:
        return CompactionTry(
            ended_ms=recorded_ms(name),
            result="failed",
            why=f"{name} cannot be read ({type(error).__name__})",
        )


def record_vacuum(store: Store, table_key: str, record: VacuumRecord) -> None:
    """Records a vacuum that has ended, successfully or not."""
    name = f"{record.started_ms:015}-{uuid4().hex}.json"
    append_record(store, f"{_VACUUMS}/{table_key}", name, asdict(record), kept_count=_VACUUMS_KEPT)


def vacuum_records(
    store: Store, table_key: str, *, newest: int = _VACUUMS_READ
) -> tuple[VacuumRecord, ...]:
    """The last `newest` vacuums of a table, oldest first.

    Damaged records are omitted. If no search for orphans is left, the next vacuum searches again.
    """
    names = names_by_table(store, _VACUUMS, table_key).get(table_key, [])
    return _read_vacuums(store, names[-newest:])


def recent_vacuums(
    store: Store, *, since_ms: int
) -> dict[str, tuple[int, tuple[VacuumRecord, ...]]]:
    """By table: the start of its newest vacuum, and its vacuums that began since `since_ms`.

    One listing covers all tables. Older records are not read.
    """
    vacuums = dict[str, tuple[int, tuple[VacuumRecord, ...]]]()
    for table, names in names_by_table(store, _VACUUMS).items():
        recent = [name for name in names if recorded_ms(name) >= since_ms]
        vacuums[table] = recorded_ms(names[-1]), _read_vacuums(store, recent)
    return vacuums


def _read_vacuums(store: Store, names: Sequence[str]) -> tuple[VacuumRecord, ...]:
    """The records, without damaged ones."""
    records = list[VacuumRecord]()
    for data in store.read_many(names):
        with contextlib.suppress(ValueError, TypeError):
            records.append(VacuumRecord(**json.loads(data)))
    return tuple(records)
