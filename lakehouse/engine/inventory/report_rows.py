"""The rows of one inventory report, read once for all tables that ask for theirs."""

import sqlite3
from collections.abc import Iterator

from lakehouse.core.inventory.classify import is_current
from lakehouse.core.inventory.objects import StoredObject
from lakehouse.core.inventory.table_folders import table_roots
from lakehouse.engine.inventory.stored_reports import Report, read_report
from lakehouse.engine.store import Store


class ReportRows:
    """One report's rows below the lake, kept in a temporary file of this machine; `tables` are the folders in it that hold a Delta log.

    Raises:
        Refused: from the constructor, as for `read_report`.
    """

    def __init__(self, store: Store, report: Report) -> None:
        self.report, self.tables, self._bucket = report, set[str](), store.bucket
        self._rows = sqlite3.connect("", check_same_thread=False)  # "" is a file that goes with its connection
        self._rows.execute("CREATE TABLE object (key TEXT, size_bytes, modified_ms, is_dir, is_latest, is_delete_marker)")
        self._rows.executemany("INSERT INTO object VALUES (?, ?, ?, ?, ?, ?)", self._read(store))
        self._rows.execute("CREATE INDEX by_key ON object (key)")

    def below(self, folder: str) -> Iterator[StoredObject]:
        """The rows whose key begins with `folder`, which ends in `/`, sorted by key."""
        end = folder[:-1] + chr(ord("/") + 1)
        query = "SELECT * FROM object WHERE key >= ? AND key < ? ORDER BY key"
        for key, size_bytes, modified_ms, is_dir, is_latest, is_marker in self._rows.execute(query, (folder, end)):
            yield StoredObject(
                bucket=self._bucket,
                key=key,
                size_bytes=size_bytes,
                modified_ms=modified_ms,
                is_dir=bool(is_dir),
                is_latest=None if is_latest is None else bool(is_latest),
                is_delete_marker=None if is_marker is None else bool(is_marker),
            )

    def _read(self, store: Store) -> Iterator[tuple[object, ...]]:
        for each in read_report(store, self.report):
            if each.key.startswith(store.prefix):
                if is_current(each):  # a log of which only versions are left makes no table
                    self.tables |= table_roots([each.key.removeprefix(store.prefix)])
                yield each.key, each.size_bytes, each.modified_ms, each.is_dir, each.is_latest, each.is_delete_marker
