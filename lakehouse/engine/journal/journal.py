"""The journal: records that the Delta log cannot hold, below `_lakehouse/` in the store.

- Batch manifests and segments: `_lakehouse/ingest/`, in `planned_batches`.
- Session records: `_lakehouse/sessions/`, in `engine.table_lock`.
- Vacuums: `_lakehouse/vacuums/`, in `vacuums`.
- Pauses: `_lakehouse/pauses/<layer>/<name>.json`, deleted when the table is resumed.
- Tries: `_lakehouse/tries/<layer>/<name>/<ms>-<id>.json`, compactions that failed or lost a race.
- Probes: `_lakehouse/probes/<layer>/<name>/<ms>-<version>.json`, scans before and after a
  compaction.
- The marker: `_lakehouse/changes/<id>`, replaced after each change to pauses, tries and probes. One
  listing shows whether anything changed.

The newest tries and probes of each table are kept (`_KEPT`).
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
# The cost account of a table needs its tries. Older probes are kept only for people.
_KEPT = {TRIES: FAILURES_KEPT, PROBES: 20}
# The circuit breaker opens after a few failures in a row; older tries would not change that.
_TRIES_READ = 20

type_of_tries = tuple[CompactionTry, ...]


class JournalCache:
    """The pauses and tries of all tables, kept in memory between two ticks.

    1. One listing of the markers shows whether a pause or a try was written since the last refresh.
       If not, nothing else is requested.
    2. If so, or if the last sweep was too long ago, both folders are listed.
    3. A record is read on request, and again only if its size or time changed. A pause is read
       again after each listing.

    A sweep finds records without a marker, which a person wrote, or a process that died before it
    wrote the marker.
    """

    def __init__(self, store: Store, *, sweep_ms: int) -> None:
        self._store, self._sweep_ms = store, sweep_ms
        self._markers: list[str] | None = None
        self._swept_ms = 0
        self._files: dict[str, StoredFile] = {}
        self._contents: dict[StoredFile, bytes] = {}

    def refresh(self, now_ms: int) -> None:
        """Lists the records at first, if a marker changed, and `sweep_ms` after the last sweep."""
        markers = [file.name for file in self._store.list(CHANGES)]
        if markers == self._markers and now_ms - self._swept_ms < self._sweep_ms:
            return
        # Listed after the markers. The next call finds the marker of any later record.
        self._files = {
            file.name: file for kind in (PAUSES, TRIES) for file in self._store.list(kind)
        }
        # S3 lists times in seconds. Two pauses within one second may have the same size.
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


# Where the journal's records are read from.
Records = Store | JournalCache


class Journal:
    """The journal of one lake. Records of all tables are read from `records`, perhaps a cache."""

    def __init__(self, store: Store, records: Records | None = None) -> None:
        self._store, self._records = store, records or store

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
        """Every pause by its table, including expired ones.

        A damaged record counts as a pause without an end, since nothing acts on unknown facts.
        """
        names = [file.name for file in self._records.list(PAUSES)]
        found = [
            _pause(name, data)
            for name, data in zip(names, self._records.read_many(names), strict=True)
        ]
        return {pause.table: pause for pause in found}

    def pause_of(self, table_key: str) -> Pause | None:
        """The pause of one table, even if expired."""
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

    def tries(self, table_key: str, *, newest: int = _TRIES_READ) -> type_of_tries:
        """The newest tries of a table, oldest first; a damaged record counts as a failure."""
        return self.tries_since({}, under=table_key, newest=newest).get(table_key, ())

    def tries_since(
        self, succeeded_ms: Mapping[str, int], *, under: str = "", newest: int = _TRIES_READ
    ) -> dict[str, type_of_tries]:
        """The newest tries since the last success of each table, or of the tables `under` a key."""
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
        self.mark_changed()

    def mark_changed(self) -> None:
        """Shows all caches that records changed.

        The markers are replaced by a new one, whose name no reader has seen before.
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
