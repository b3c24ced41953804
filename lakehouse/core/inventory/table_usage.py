"""One table's objects, told apart by its books and counted."""

from collections import Counter
from collections.abc import Set

from lakehouse.core.inventory.classify import Classifier
from lakehouse.core.inventory.objects import Part, StoredObject
from lakehouse.core.inventory.table_files import Reference, TableBooks
from lakehouse.core.inventory.usage import TableShares, UsageShare

_NEEDED_NOW = (Part.LIVE, Part.VECTORS_LIVE)


class Tally:
    """Counts a table's objects by part and storage class, as the classifier tells them apart."""

    def __init__(self, books: TableBooks, classifier: Classifier) -> None:
        self._books, self._classifier = books, classifier
        self._unseen: dict[str, Reference] = {**books.live, **books.vectors}
        self._resized: list[str] = []
        self._bytes: Counter[tuple[Part, str | None]] = Counter()
        self._count: Counter[tuple[Part, str | None]] = Counter()

    def take(self, name: str, each: StoredObject) -> None:
        """Count one object of the table; `name` is relative to the lake."""
        part = self._classifier.part_of(name, each)
        self._bytes[part, each.storage_class] += each.size_bytes
        self._count[part, each.storage_class] += 1
        if part in _NEEDED_NOW:
            own = self._classifier.own_name(name)
            self._unseen.pop(own, None)
            live = self._books.live.get(own)
            if live is not None and live.size_bytes is not None and live.size_bytes != each.size_bytes:
                self._resized.append(own)

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
                UsageShare(part=part, storage_class=kind, file_count=self._count[part, kind], size_bytes=self._bytes[part, kind])
                for part in Part
                for kind in sorted({kind for counted, kind in self._count if counted is part}, key=lambda kind: kind or "")
            ),
            missing=tuple(sorted(missing)),
            resized=tuple(sorted(self._resized)),
            unsettled_count=len(unseen) - len(missing),
            outside_count=len(books.outside),
        )
