"""The append-only record of what the Delta log does not keep, below `_lakehouse/` in the store.

- Batch manifests and their segments: `_lakehouse/ingest/`, in `planned_batches`.
- Session records: `_lakehouse/sessions/`, in `engine.table_lock`.
- Pauses: `_lakehouse/pauses/<layer>/<name>.json`, a person's word that a table is to be left alone; gone when the table is resumed.
- Vacuums: `_lakehouse/vacuums/`, in `vacuums`.
- Tries: `_lakehouse/tries/<layer>/<name>/<ms>-<id>.json`, a compaction that failed, or whose work was lost to another writer; written once.
- Probes: `_lakehouse/probes/<layer>/<name>/<ms>-<version>.json`, scans before and after a compaction.
- Of tries and probes the newest of each table are kept (`_KEPT`).
- The marker: `_lakehouse/changes/<id>`, a new name after each pause and try. One listing shows
  whether any of them is new.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any
from uuid import uuid4

from lakehouse.core.journal_records import FAILURES_KEPT, CompactionTry, Pause
from lakehouse.engine.journal.records import append_record, encoded, names_by_table, recorded_ms
from lakehouse.engine.store import Store, StoredFile

PAUSES, TRIES, PROBES = "_lakehouse/pauses", "_lakehouse/tries", "_lakehouse/probes"
CHANGES = "_lakehouse/changes"
# The account of a table needs its tries. Older probes are kept for a person to look at.
_KEPT = {TRIES: FAILURES_KEPT, PROBES: 20}
# A breaker asks for a few failures in a row; beyond these it could only count how hopeless a table is.
_TRIES_READ = 20

type_of_tries = tuple[CompactionTry, ...]


class JournalCache:
    """The pauses and tries of all tables, kept in memory between two looks at the journal.

    1. One listing of the markers shows whether a pause or a try was written since the last look.
       If not, nothing else is requested.
    2. If so, or if the last sweep is too long ago, both folders are listed.
    3. A record is read when it is asked for. It is not read again until its size or time is another; a pause is, after each listing.

    The sweep finds records without a marker, written by hand or by a process that died between record and marker.
    """

    def __init__(self, store: Store, *, sweep_ms: int) -> None:
        self._store, self._sweep_ms = store, sweep_ms
        self._markers: list[str] | None = None
        self._swept_ms = 0
        self._files: dict[str, StoredFile] = {}
        self._contents: dict[StoredFile, bytes] = {}

    def refresh(self, now_ms: int) -> None:
        """Learn of what was written since the last call; the first one lists everything, and so does one `sweep_ms` after a sweep."""
        markers = [file.name for file in self._store.list(CHANGES)]
        if markers == self._markers and now_ms - self._swept_ms < self._sweep_ms:
            return
        # Listed after the markers: what is written from here on has a marker that the next look finds.
        self._files = {
            file.name: file for kind in (PAUSES, TRIES) for file in self._store.list(kind)
        }
        # Two pauses within the second that S3 tells may be equally long.
        kept = [
            file
            for file in self._files.values()
            if file in self._contents and not file.name.startswith(PAUSES)
        ]
        self._contents = {file: self._contents[file] for file in kept}
        self._markers, self._swept_ms = markers, now_ms

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


Records = Store | JournalCache  # of which the journal's records are read


class Journal:
    """The journal of one lake; the sensor reads the records of all tables from `records`, which may be what a cache has of the store."""

    def __init__(self, store: Store, records: Records | None = None) -> None:
        self._store, self._records = store, records or store

    def pause(self, pause: Pause) -> None:
        """Note that a table is paused, in place of an earlier pause."""
        content = asdict(pause)
        del content["table"]
        self._store.put(_name(PAUSES, pause.table), encoded(content))
        self._mark_changed()

    def resume(self, table_key: str) -> None:
        """Note that a table is no longer paused."""
        self._store.delete([_name(PAUSES, table_key)])
        self._mark_changed()

    def pauses(self) -> dict[str, Pause]:
        """Every pause by its table, those whose time is over among them: one listing, and a read for each.

        A record that is damaged is a pause without an end: what a person asked for is unknown, and unknown never acts.
        """
        names = [file.name for file in self._records.list(PAUSES)]
        found = [
            _pause(name, data)
            for name, data in zip(names, self._records.read_many(names), strict=True)
        ]
        return {pause.table: pause for pause in found}

    def pause_of(self, table_key: str) -> Pause | None:
        """The pause of one table, whether or not its time is over; read as by `pauses`."""
        name = _name(PAUSES, table_key)
        with contextlib.suppress(FileNotFoundError):
            return _pause(name, self._store.read(name))
        return None

    def record_try(self, table_key: str, ended: CompactionTry) -> None:
        """Note a compaction that did not succeed."""
        self._record(TRIES, table_key, f"{ended.ended_ms:015}-{uuid4().hex}.json", asdict(ended))

    def record_probe(self, table_key: str, name: str, probe: Mapping[str, Any]) -> None:
        """Note a probe of a compaction."""
        self._record(PROBES, table_key, name, probe)

    def tries(self, table_key: str, *, newest: int = _TRIES_READ) -> type_of_tries:
        """The newest of the noted tries of a table, oldest first; one that is damaged counts as a failure."""
        return self.tries_since({}, under=table_key, newest=newest).get(table_key, ())

    def tries_since(
        self, succeeded_ms: Mapping[str, int], *, under: str = "", newest: int = _TRIES_READ
    ) -> dict[str, type_of_tries]:
        """The same of all tables, of each those after its time in `succeeded_ms`: one listing, and a read for each."""
        listed = names_by_table(self._records, TRIES, under)
        found = {
            key: [name for name in names if recorded_ms(name) > succeeded_ms.get(key, -1)][-newest:]
            for key, names in listed.items()
        }
        read = self._records.read_many([name for names in found.values() for name in names])
        return {
            key: tuple(_try(name, next(read)) for name in names)
            for key, names in found.items()
            if names
        }

    def _record(self, kind: str, table_key: str, name: str, content: Mapping[str, Any]) -> None:
        folder = f"{kind}/{table_key}"
        append_record(self._store, folder, name, content, kept_count=_KEPT[kind])
        self._mark_changed()

    def _mark_changed(self) -> None:
        """A new marker in place of those that were there before, so that a reader never finds the names again that it found before."""
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
