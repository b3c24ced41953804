"""The pauses, tries and probes of all tables, kept in memory between two looks at the journal.

1. One listing of the markers tells whether a pause, a try or a probe was written since the last look. If not, nothing else is asked.
2. If so, or if the last sweep is too long ago, the three folders are listed.
3. A record is read when it is asked for. It is not read again until its size or time is another; a pause is, after each listing.

The sweep finds what was written without a marker: by an older program, by hand, or by a process that died between record and marker.
"""

from collections.abc import Iterator, Sequence

from lakehouse.engine.journal.journal import CHANGES, PAUSES, PROBES, TRIES
from lakehouse.engine.store import Store, StoredFile


class JournalCache:
    """`Records` of a store, as they were at the last `refresh` that found a change."""

    def __init__(self, store: Store, *, sweep_ms: int) -> None:
        self._store, self._sweep_ms = store, sweep_ms
        self._markers: list[str] | None = None
        self._swept_ms = 0
        self._files: dict[str, StoredFile] = {}
        self._contents: dict[StoredFile, bytes] = {}

    def refresh(self, now_ms: int) -> None:
        """Learn of what was written since the last call; the first one lists everything, and so does one `sweep_ms` after a sweep."""
        markers = [file.name for file in self._store.list(CHANGES)]
        if markers == self._markers and 0 <= now_ms - self._swept_ms < self._sweep_ms:
            return
        # Listed after the markers: what is written from here on has a marker that the next look finds.
        files = [file for kind in (PAUSES, TRIES, PROBES) for file in self._store.list(kind)]
        self._files = {file.name: file for file in files}
        # Two pauses within the second that S3 tells may be equally long.
        kept = [file for file in files if file in self._contents and not file.name.startswith(PAUSES)]
        self._contents = {file: self._contents[file] for file in kept}
        self._markers, self._swept_ms = markers, now_ms

    def list(self, prefix: str) -> list[StoredFile]:
        """See `Store.list`."""
        return [file for name, file in self._files.items() if name.startswith(f"{prefix}/")]

    def read_many(self, names: Sequence[str]) -> Iterator[bytes]:
        """See `Store.read_many`."""
        unread = [file for name in names if (file := self._files[name]) not in self._contents]
        for file, data in zip(unread, self._store.read_many([file.name for file in unread]), strict=True):
            self._contents[file] = data
        return (self._contents[self._files[name]] for name in names)
