"""One table's objects, told apart by its books and counted."""

import re
from collections import Counter
from collections.abc import Set

from lakehouse.core.inventory.books import Reference, TableBooks, hidden_rule
from lakehouse.core.inventory.parts import Part, StoredObject
from lakehouse.core.inventory.shares import Share, TableShares

_LOG, _CHANGES = "_delta_log/", "_change_data/"
# Source: PROTOCOL.md, "Deletion Vector File Storage Format", "Delta Log Entries", "Checkpoints", "Version Checksum File".
_VECTOR = re.compile(r"(?:.*/)?deletion_vector_[0-9a-f-]{36}\.bin", re.DOTALL)
_LOG_PARTS = (
    (re.compile(r"\d{20}\.json|_(?:staged_)?commits/.*\.json"), Part.LOG_COMMITS),
    (re.compile(r"\d{20}\.checkpoint\..*"), Part.LOG_CHECKPOINTS),
    (re.compile(r"_sidecars/[^.].*"), Part.LOG_SIDECARS),
    (re.compile(r"\d{20}\.crc"), Part.LOG_CHECKSUMS),
)


def is_current(each: StoredObject) -> bool:
    """Whether a reader of the key would get this object; a report that does not tell versions apart lists current ones alone."""
    return each.is_latest is not False and not each.is_delete_marker


class Tally:
    """Counts a table's objects by part and storage class; names in `lent` (relative to the lake) are read by other tables, too."""

    def __init__(self, books: TableBooks, lent: Set[str], *, now_ms: int) -> None:
        self._books, self._lent = books, lent
        # Without a known retention nothing is past it.
        self._horizon_ms = 0 if books.retention_ms is None else now_ms - books.retention_ms
        self._hidden = hidden_rule(books.partition_columns)
        self._unseen: dict[str, Reference] = {**books.live, **books.vectors}
        self._resized: list[str] = []
        self._bytes: Counter[tuple[Part, str | None]] = Counter()
        self._count: Counter[tuple[Part, str | None]] = Counter()

    def take(self, name: str, each: StoredObject) -> None:
        """Count one object of the table; `name` is relative to the lake."""
        cell = (self._part(name, each), each.storage_class)
        self._bytes[cell] += each.size_bytes
        self._count[cell] += 1

    def shares(self, seen: Set[str], *, settled_ms: int) -> TableShares:
        """What was counted; `seen` are the files outside its folder that the inventory has."""
        books = self._books
        unseen = self._unseen | {name: each for name, each in books.elsewhere.items() if name not in seen}
        missing = [name for name, each in unseen.items() if each.written_ms is not None and each.written_ms < settled_ms]
        return TableShares(
            table=books.table,
            version=books.version,
            retention_ms=books.retention_ms,
            shares=tuple(
                Share(part=part, storage_class=kind, file_count=self._count[part, kind], size_bytes=self._bytes[part, kind])
                for part in Part
                for kind in sorted({kind for counted, kind in self._count if counted is part}, key=lambda kind: kind or "")
            ),
            missing=tuple(sorted(missing)),
            resized=tuple(sorted(self._resized)),
            unsettled_count=len(unseen) - len(missing),
            outside_count=len(books.outside),
        )

    def _part(self, name: str, each: StoredObject) -> Part:
        if each.is_delete_marker:
            return Part.DELETE_MARKERS
        if not is_current(each):
            return Part.NONCURRENT
        own = name.removeprefix(self._books.table).removeprefix("/")
        if own in self._unseen or own in self._books.live or own in self._books.vectors:
            return self._read_now(own, each)
        if own.startswith(_LOG):
            return next((part for rule, part in _LOG_PARTS if rule.fullmatch(own, len(_LOG))), Part.LOG_OTHER)
        if each.is_dir:
            return Part.FOLDERS
        if name in self._lent:
            return Part.LENT
        return self._not_read_now(own, each)

    def _read_now(self, own: str, each: StoredObject) -> Part:
        self._unseen.pop(own, None)
        if (live := self._books.live.get(own)) is None:
            return Part.VECTORS_LIVE
        if live.size_bytes is not None and live.size_bytes != each.size_bytes:
            self._resized.append(own)
        return Part.LIVE

    def _not_read_now(self, own: str, each: StoredObject) -> Part:
        books = self._books
        if own in books.stones:
            return Part.TOMBSTONED_KEPT if self._kept(books.stones[own]) else Part.TOMBSTONED_PAST
        if own in books.removed_vectors:
            return Part.VECTORS_KEPT if self._kept(books.removed_vectors[own]) else Part.VECTORS_DEAD
        if own.startswith(_CHANGES):
            return Part.CHANGE_DATA
        if self._hidden.match(own):
            return Part.HIDDEN
        if self._kept(each.modified_ms):
            return Part.ORPHANED_YOUNG
        return Part.VECTORS_DEAD if _VECTOR.fullmatch(own) else Part.ORPHANED_OLD

    def _kept(self, ms: int | None) -> bool:
        """Whether a time is within the retention; one that is unknown is."""
        return ms is None or ms >= self._horizon_ms
