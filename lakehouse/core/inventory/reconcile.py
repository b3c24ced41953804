"""Assigns every object of an inventory to one part of one table, or to no table.

One pass over the objects suffices. The memory depends on the number of files in the tables' logs,
but not on the number of objects.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from lakehouse.core.inventory.classify import (
    ObjectClassifier,
    OtherUses,
    archived_part,
    archived_table,
    is_current,
)
from lakehouse.core.inventory.objects import PAGE_KEYS, Listing, Part, StoredObject
from lakehouse.core.inventory.table_files import Reference, TableFiles
from lakehouse.core.inventory.table_roots import Owners

# The limit for small files of a table whose log is not read: three quarters of 16 MiB, which is
# small compared with the target size of every policy.
_SMALL_BYTES = 12 * 1024 * 1024
# The name for objects outside the lake's folder.
_OUTSIDE = "(outside the lake)"
_NEEDED_NOW = (Part.LIVE, Part.VECTORS_LIVE)

# Files, bytes, small files and bytes of padding, by folder, part and storage class.
UsageCounts = defaultdict[tuple[str, Part | None, str | None], list[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageShare:
    """Objects of one part and one storage class.

    `part` is `None` if the objects belong to no table. `folder` is the table, or else the top of
    the path. `small_count` is the number of small data files; it is counted only for objects whose
    table's log is not read. `padding_bytes` are billed in addition to the stored bytes, because
    S3's infrequent-access classes bill a minimum size per object.
    """

    part: Part | None
    storage_class: str | None
    file_count: int
    size_bytes: int
    folder: str
    small_count: int
    padding_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TableShares:
    """All objects in one table's folder and in its archive's folder, by part.

    - `version` is `None` if the log cannot be read. In this case, `problem` is the reason.
    - `missing`: live files (files that the newest version reads) that are not in storage.
    - `archived`: live files that must be restored before they can be read.
    - `cold_files`: live files in another storage class than STANDARD, with the class.
    - `resized`: live files whose size in storage differs from the log.
    - `unsettled_count`: live files that the report lacks, but that may be too new for the report.
    - `outside_count`: live files outside the lake, which the report does not cover.
    """

    table: str
    version: int | None
    retention_ms: int | None
    shares: tuple[UsageShare, ...]
    missing: tuple[str, ...] = ()
    archived: tuple[str, ...] = ()
    cold_files: Mapping[str, str] = field(default_factory=dict[str, str])
    resized: tuple[str, ...] = ()
    unsettled_count: int = 0
    outside_count: int = 0
    problem: str = ""

    @property
    def file_count(self) -> int:
        """The number of objects in the table's folder and archive, without nested tables."""
        return sum(share.file_count for share in self.shares)

    @property
    def size_bytes(self) -> int:
        """The total size of these objects."""
        return sum(share.size_bytes for share in self.shares)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation:
    """The whole inventory: the tables, sorted by name, and the objects outside all tables."""

    tables: tuple[TableShares, ...]
    unclaimed: tuple[UsageShare, ...]

    @property
    def file_count(self) -> int:
        """The number of objects in the inventory."""
        return sum(each.file_count for each in (*self.tables, *self.unclaimed))

    @property
    def size_bytes(self) -> int:
        """The total size of these objects."""
        return sum(each.size_bytes for each in (*self.tables, *self.unclaimed))

    @property
    def list_request_count(self) -> int:
        """LIST requests of a full listing of all tables' folders.

        Source: AWS, ListObjectsV2: 1,000 keys per page.
        """
        in_folders = [
            sum(share.file_count for share in table.shares if share.part is not Part.ARCHIVED)
            for table in self.tables
        ]
        return sum(-(-count // PAGE_KEYS) for count in in_folders)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTables:
    """The tables of a lake.

    The lake's keys begin with `lake_prefix`, which is empty or ends in `/`. `unread` maps tables
    whose log cannot be read to the reason. Declared tables load from the prefixes in `landed`.
    `least_billed_bytes` maps a storage class to the minimum size that S3 bills per object; it may
    be empty if padding is not needed.
    """

    files: Sequence[TableFiles]
    unread: Mapping[str, str] = field(default_factory=dict[str, str])
    landed: tuple[str, ...] = ()
    lake_prefix: str = ""
    least_billed_bytes: Mapping[str, int] = field(default_factory=dict[str, int])


def reconcile(tables: KnownTables, listing: Listing, *, now_ms: int) -> Reconciliation:
    """Assigns each object of an inventory to one part of one table, or to none.

    The tables' logs must be read after the inventory was created. So for commits in the meantime,
    removed files have a tombstone, and added files are not taken for orphans.
    """
    lake_prefix = tables.lake_prefix
    settled_ms = listing.settled_ms
    least_billed_bytes = tables.least_billed_bytes
    known = [*(each.table for each in tables.files), *tables.unread]
    borrowed = {name for each in tables.files for name in each.borrowed(known)}
    unplaced = {last for each in tables.files for last in each.unplaced}
    uses = OtherUses(borrowed=borrowed, unplaced=unplaced, landed=tables.landed)
    by_key = {
        each.table: _Table(each, ObjectClassifier(each, uses, now_ms=now_ms))
        for each in tables.files
    }
    owners = Owners(known)
    seen = set[str]()
    cells: UsageCounts = defaultdict(lambda: [0, 0, 0, 0])
    for each in listing.objects:
        name = each.key.removeprefix(lake_prefix) if each.key.startswith(lake_prefix) else None
        owner = None if name is None else owners.table_of(name)
        if name in borrowed and is_current(each):
            seen.add(name)
        archived_of = None if name is None or owner is not None else archived_table(name)
        if name is not None and owner in by_key:
            cell = cells[owner, by_key[owner].take(name, each), each.storage_class]
        elif archived_of in by_key:
            cell = cells[archived_of, archived_part(each), each.storage_class]
        else:
            folder = _OUTSIDE if name is None else owner or _top_folder(name)
            cell = cells[folder, Part.UNREAD if owner else None, each.storage_class]
            cell[2] += _is_small_data(each)
        cell[0] += 1
        cell[1] += each.size_bytes
        least_bytes = least_billed_bytes.get(each.storage_class or "", 0)
        cell[3] += max(0, least_bytes - each.size_bytes)
    by_table: defaultdict[str, list[UsageShare]] = defaultdict(list)
    unclaimed: list[UsageShare] = []
    for share in _shares(cells):
        (by_table[share.folder] if share.part else unclaimed).append(share)
    shares = [
        table.shares(by_table[name], seen, settled_ms=settled_ms) for name, table in by_key.items()
    ]
    shares += [
        TableShares(
            table=name, version=None, retention_ms=None, shares=tuple(by_table[name]), problem=why
        )
        for name, why in tables.unread.items()
    ]
    return Reconciliation(
        tables=tuple(sorted(shares, key=lambda table: table.table)), unclaimed=tuple(unclaimed)
    )


class _Table:
    """Tracks which live files of a table are missing, archived, cold or have another size."""

    def __init__(self, table_files: TableFiles, classifier: ObjectClassifier) -> None:
        self._table_files = table_files
        self._classifier = classifier
        self._unseen: dict[str, Reference] = {**table_files.live, **table_files.vectors}
        self._resized: list[str] = []
        self._archived: list[str] = []
        self._cold: dict[str, str] = {}

    def take(self, name: str, each: StoredObject) -> Part:
        """Records an object as seen, and returns its part. `name` is relative to the lake."""
        own = name.removeprefix(self._table_files.table).removeprefix("/")
        part = self._classifier.part_of(own, each)
        if part in _NEEDED_NOW:
            self._unseen.pop(own, None)
            if each.is_archived:
                self._archived.append(own)
            if each.storage_class is not None and each.is_cold:
                self._cold[own] = each.storage_class
            live = self._table_files.live.get(own)
            if (
                live is not None
                and live.size_bytes is not None
                and live.size_bytes != each.size_bytes
            ):
                self._resized.append(own)
        return part

    def shares(
        self, shares: Iterable[UsageShare], seen: Set[str], *, settled_ms: int
    ) -> TableShares:
        """The table's shares, after all objects were taken.

        `seen` are the borrowed files, of all tables, that the inventory contains.
        """
        table_files = self._table_files
        unseen = {
            name: each
            for name, each in self._unseen.items()
            if f"{table_files.table}/{name}" not in seen
        }
        unseen |= {name: each for name, each in table_files.elsewhere.items() if name not in seen}
        written = {
            name: each.written_ms for name, each in unseen.items() if each.written_ms is not None
        }
        missing = [name for name, ms in written.items() if ms < settled_ms]
        return TableShares(
            table=table_files.table,
            version=table_files.version,
            retention_ms=table_files.retention_ms,
            shares=tuple(shares),
            missing=tuple(sorted(missing)),
            archived=tuple(sorted(self._archived)),
            cold_files=self._cold,
            resized=tuple(sorted(self._resized)),
            unsettled_count=len(written) - len(missing),
            outside_count=len(table_files.outside),
        )


def _shares(cells: UsageCounts) -> Iterable[UsageShare]:
    order = {part: index for index, part in enumerate([None, *Part])}
    for folder, part, kind in sorted(
        cells, key=lambda cell: (cell[0], order[cell[1]], cell[2] or "")
    ):
        count, size, small, padding = cells[folder, part, kind]
        yield UsageShare(
            part=part,
            folder=folder,
            storage_class=kind,
            file_count=count,
            size_bytes=size,
            small_count=small,
            padding_bytes=padding,
        )


def _is_small_data(each: StoredObject) -> bool:
    hidden = "/_" in f"/{each.key}" or "/." in each.key
    return each.size_bytes < _SMALL_BYTES and not each.is_dir and not hidden and is_current(each)


def _top_folder(name: str) -> str:
    """The top two folders of a name, for example `landing/weather/`; at the root, the name."""
    *folders, last = name.split("/")
    return "".join(f"{folder}/" for folder in folders[:2]) or last
