"""The journal: records that the Delta log cannot hold, below `_lakehouse/` in the store.

- Batch manifests and segments: `_lakehouse/ingest/` (module `planned_batches`).
- Session records: `_lakehouse/sessions/` (module `engine.table_lock`).
- Vacuums: `_lakehouse/vacuums/<layer>/<name>/<ms>-<id>.json`, written once, when the vacuum ends.
- Tables of `maintain`: `_lakehouse/maintained/` (module `engine.adoption.maintained`), for 30 days.
- Alerts: `_lakehouse/alerts/` (module `engine.metrics.alerts`).
- Pauses: `_lakehouse/pauses/<layer>/<name>.json`, deleted when the table is resumed.
- Tries: `_lakehouse/tries/<layer>/<name>/<ms>-<id>.json`, for compactions that failed or lost a
  race.
- Probes: `_lakehouse/probes/<layer>/<name>/<ms>-<version>.json`, with the durations of scans before
  and after a compaction.
- Totals of the metrics' counters: `_lakehouse/metrics/` (module `engine.metrics.totals`).
- Morning pages: `_lakehouse/reports/` (module `engine.report.stored_pages`), of the last 14 days.
- The marker: `_lakehouse/changes/<id>`, replaced with a marker of another id after each change to
  pauses, tries and probes. So one listing shows whether any of them changed.

Of each table's tries and probes, the newest `_KEPT` are kept.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any
from uuid import uuid4

from lakehouse.core.journal_records import FAILURES_KEPT, CompactionTry, Pause, VacuumRecord
from lakehouse.engine.journal.records import append_record, encoded, names_by_table, recorded_ms
from lakehouse.engine.store import Store, StoredFile

PAUSES = "_lakehouse/pauses"
TRIES = "_lakehouse/tries"
PROBES = "_lakehouse/probes"
CHANGES = "_lakehouse/changes"
# The cost account of a table uses its tries. Only the newest probe is read; older probes are kept
# for people.
_KEPT = {TRIES: FAILURES_KEPT, PROBES: 20}
# The circuit breaker opens after a few failures in a row; older tries would not change that.
_TRIES_READ = 20
_VACUUMS = "_lakehouse/vacuums"
# Only the newer half is read. The older half is kept for people.
_VACUUMS_KEPT = 100
# Must reach back to the last vacuum of a mode other than LITE. Even a table that is vacuumed after
# each compaction has only a few records between two such vacuums.
_VACUUMS_READ = 50

Tries = tuple[CompactionTry, ...]


class JournalCache:
    """The pauses and tries of all tables, kept in memory between two ticks.

    1. One listing of the markers shows whether a pause or a try was written since the last refresh.
    2. If one was written, or if the last sweep was too long ago, a sweep follows: both folders are
       listed. Otherwise, nothing else is requested.
    3. A record is read when it is requested, and again only if its size or time changed. A pause is
       also read again after each sweep.

    A sweep also finds records without a marker. They were written by a person, or by a process that
    died before it wrote the marker.
    """

    def __init__(self, store: Store, *, sweep_ms: int) -> None:
        self._store = store
        self._sweep_ms = sweep_ms
        self._markers: list[str] | None = None
        self._swept_ms = 0
        self._files: dict[str, StoredFile] = {}
        self._contents: dict[StoredFile, bytes] = {}

    def refresh(self, now_ms: int) -> None:
        """Sweeps in the first call, after a marker changed, and `sweep_ms` after the last sweep."""
        markers = [file.name for file in self._store.list(CHANGES)]
        if markers == self._markers and now_ms - self._swept_ms < self._sweep_ms:
            return
        # Records are listed after the markers. The marker of a record that this listing misses is
        # written even later, so the next call finds a new marker.
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
        """See `Store.list`."""
        return [file for name, file in self._files.items() if name.startswith(f"{prefix}/")]

    def read_many(self, names: Sequence[str]) -> Iterator[bytes]:
        """See `Store.read_many`."""
        unread = [file for name in names if (file := self._files[name]) not in self._contents]
        self._contents.update(
            zip(unread, self._store.read_many([file.name for file in unread]), strict=True)
        )
        return (self._contents[self._files[name]] for name in names)


# Where the journal's records are read from.
Records = Store | JournalCache


class Journal:
    """The journal of one lake. Pauses and tries are read from `records`, which may be a cache."""

    def __init__(self, store: Store, records: Records | None = None) -> None:
        self._store = store
        self._records = records or store

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
        names = [file.name for file in self._records.list(PAUSES)]
        records = [
            _pause(name, data)
            for name, data in zip(names, self._records.read_many(names), strict=True)
        ]
        return {pause.table: pause for pause in records}

    def pause_of(self, table_key: str) -> Pause | None:
        """The pause of one table, even if expired. Not read from the cache."""
        name = _name(PAUSES, table_key)
        with contextlib.suppress(FileNotFoundError):
            return _pause(name, self._store.read(name))
        return None

    def record_try(self, table_key: str, ended: CompactionTry) -> None:
        """Records a compaction that did not succeed."""
        self._record(TRIES, table_key, f"{ended.ended_ms:015}-{uuid4().hex}.json", asdict(ended))

    def record_probe(self, table_key: str, name: str, probe: Mapping[str, Any]) -> None:
        """Records a probe of a compaction."""
        self._record(PROBES, table_key, name, probe)

    def tries(self, table_key: str, *, newest: int = _TRIES_READ) -> Tries:
        """The newest tries of a table, oldest first; a damaged record counts as a failure."""
        return self.tries_since({}, under=table_key, newest=newest).get(table_key, ())

    def tries_since(
        self, succeeded_ms: Mapping[str, int], *, under: str = "", newest: int = _TRIES_READ
    ) -> dict[str, Tries]:
        """The newest tries after each table's time in `succeeded_ms`; `under` selects one table."""
        listed = names_by_table(self._records, TRIES, under)
        tries = {
            key: [name for name in names if recorded_ms(name) > succeeded_ms.get(key, -1)][-newest:]
            for key, names in listed.items()
        }
        read = self._records.read_many([name for names in tries.values() for name in names])
        return {
            key: tuple(_try(name, next(read)) for name in names)
            for key, names in tries.items()
            if names
        }

    def _record(self, kind: str, table_key: str, name: str, content: Mapping[str, Any]) -> None:
        folder = f"{kind}/{table_key}"
        append_record(self._store, folder, name, content, kept_count=_KEPT[kind])
        self.mark_changed()

    def mark_changed(self) -> None:
        """Makes all caches read the records again.

        Replaces the marker with a marker of a new name.
        """
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


def vacuum_records(store: Store, table_key: str) -> tuple[VacuumRecord, ...]:
    """The newest vacuums of a table, oldest first.

    Damaged records are omitted. The next vacuum then lists the storage again.
    """
    names = names_by_table(store, _VACUUMS, table_key).get(table_key, [])[-_VACUUMS_READ:]
    return _read_vacuums(store, names)


def recent_vacuums(
    store: Store, *, since_ms: int
) -> dict[str, tuple[int, tuple[VacuumRecord, ...]]]:
    """By table: the start of its newest vacuum, and all its vacuums since `since_ms`.

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
