"""Inventory x logs: every object of the inventory in exactly one part of one table, or in no table's folder.

One pass over the objects; what is held is the tables' books and one count per part, whatever the number of objects.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set

from lakehouse.core.inventory.classify import Classifier, is_current
from lakehouse.core.inventory.objects import Part, StoredObject
from lakehouse.core.inventory.table_files import Reference, TableFiles
from lakehouse.core.inventory.table_folders import Owners
from lakehouse.core.inventory.usage import OUTSIDE, SMALL_BYTES, Reconciliation, TableShares, UsageShare

_NEEDED_NOW = (Part.LIVE, Part.VECTORS_LIVE)

type_of_counts = Counter[tuple[str, str | None]]


def reconcile(
    table_files: Sequence[TableFiles],
    objects: Iterable[StoredObject],
    *,
    now_ms: int,
    settled_ms: int,
    lake_prefix: str = "",
    unread: Mapping[str, str] | None = None,
    landed: Iterable[str] = (),
) -> Reconciliation:
    """Every object in its part. `lake_prefix` (ending in `/`, or empty) is the lake's place in the bucket.

    What was written before `settled_ms` must be in the inventory. `unread` are tables whose log cannot be read, and why. `landed` are
    the prefixes from which declared tables load. The books must be younger than the inventory: what a commit removed meanwhile has a
    tombstone, what it added is no orphan.
    """
    failed, prefixes = unread or {}, tuple(landed)
    known = [*(each.table for each in table_files), *failed]
    lent = {name for each in table_files for name in each.borrowed(known)}
    unplaced = {last for each in table_files for last in each.unplaced}
    tallies = {each.table: _Tally(each, Classifier(each, lent, now_ms=now_ms, unplaced=unplaced, landed=prefixes)) for each in table_files}
    owners = Owners([*tallies, *failed])
    bytes_of: type_of_counts = Counter()
    count_of: type_of_counts = Counter()
    small_of: type_of_counts = Counter()
    seen: set[str] = set()
    for each in objects:
        name = each.key.removeprefix(lake_prefix) if each.key.startswith(lake_prefix) else None
        table = None if name is None else owners.table_of(name)
        if name in lent and is_current(each):
            seen.add(name)
        if name is not None and table in tallies:
            tallies[table].take(name, each)
        else:
            cell = (OUTSIDE if name is None else table or _top_folder(name), each.storage_class)
            bytes_of[cell] += each.size_bytes
            count_of[cell] += 1
            small_of[cell] += _is_small_data(each)
    others = _others(bytes_of, count_of, small_of, failed)
    tables = [tally.shares(seen, settled_ms=settled_ms) for tally in tallies.values()]
    tables += [_unread(table, why, others) for table, why in failed.items()]
    return Reconciliation(
        tables=tuple(sorted(tables, key=lambda table: table.table)),
        unclaimed=tuple(share for share in others if share.part is None),
    )


class _Tally:
    """Counts a table's objects by part and storage class, as the classifier tells them apart."""

    def __init__(self, table_files: TableFiles, classifier: Classifier) -> None:
        self._table_files, self._classifier = table_files, classifier
        self._unseen: dict[str, Reference] = {**table_files.live, **table_files.vectors}
        self._resized: list[str] = []
        self._bytes: Counter[tuple[Part, str | None]] = Counter()
        self._count: Counter[tuple[Part, str | None]] = Counter()

    def take(self, name: str, each: StoredObject) -> None:
        """Count one object of the table; `name` is relative to the lake."""
        own = name.removeprefix(self._table_files.table).removeprefix("/")
        part = self._classifier.part_of(own, each)
        self._bytes[part, each.storage_class] += each.size_bytes
        self._count[part, each.storage_class] += 1
        if part in _NEEDED_NOW:
            self._unseen.pop(own, None)
            live = self._table_files.live.get(own)
            if live is not None and live.size_bytes is not None and live.size_bytes != each.size_bytes:
                self._resized.append(own)

    def shares(self, seen: Set[str], *, settled_ms: int) -> TableShares:
        """What was counted; `seen` are the files outside its folder that the inventory has."""
        table_files = self._table_files
        unseen = {name: each for name, each in self._unseen.items() if f"{table_files.table}/{name}" not in seen}
        unseen |= {name: each for name, each in table_files.elsewhere.items() if name not in seen}
        written = {name: each.written_ms for name, each in unseen.items() if each.written_ms is not None}
        missing = [name for name, ms in written.items() if ms < settled_ms]
        return TableShares(
            table=table_files.table,
            version=table_files.version,
            retention_ms=table_files.retention_ms,
            shares=tuple(
                UsageShare(part=part, storage_class=kind, file_count=self._count[part, kind], size_bytes=self._bytes[part, kind])
                for part in Part
                for kind in sorted({kind for counted, kind in self._count if counted is part}, key=lambda kind: kind or "")
            ),
            missing=tuple(sorted(missing)),
            resized=tuple(sorted(self._resized)),
            unsettled_count=len(written) - len(missing),
            outside_count=len(table_files.outside),
        )


def _others(bytes_of: type_of_counts, count_of: type_of_counts, small_of: type_of_counts, failed: Mapping[str, str]) -> list[UsageShare]:
    return [
        UsageShare(
            part=Part.UNREAD if folder in failed else None,
            folder=folder,
            storage_class=kind,
            file_count=count,
            size_bytes=bytes_of[folder, kind],
            small_count=small_of[folder, kind],
        )
        for (folder, kind), count in sorted(count_of.items(), key=lambda each: (each[0][0], each[0][1] or ""))
    ]


def _unread(table: str, why: str, shares: Iterable[UsageShare]) -> TableShares:
    of_it = tuple(share for share in shares if share.part is Part.UNREAD and share.folder == table)
    return TableShares(table=table, version=None, retention_ms=None, shares=of_it, problem=why)


def _is_small_data(each: StoredObject) -> bool:
    hidden = "/_" in f"/{each.key}" or "/." in each.key
    return each.size_bytes < SMALL_BYTES and not each.is_dir and not hidden and is_current(each)


def _top_folder(name: str) -> str:
    """`landing/weather/` for what lies below it: at most two folders, none for an object at the root of the lake."""
    *folders, last = name.split("/")
    return "".join(f"{folder}/" for folder in folders[:2]) or last
