"""Assigns every object of an inventory to one part of one table, or to no table.

One pass over the objects; what is held is the tables' books and one count per part, whatever the
number of objects.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from lakehouse.core.inventory.classify import ObjectClassifier, OtherUses, is_current
from lakehouse.core.inventory.objects import PAGE_KEYS, Listing, Part, StoredObject
from lakehouse.core.inventory.table_files import Owners, Reference, TableFiles

# Without a log nobody knows what a table's files should be like; three quarters of 16 MB is small
# for every target of the policies.
_SMALL_BYTES = 12 * 1024 * 1024
# Objects of the inventory that are not in the lake's folder at all.
_OUTSIDE = "(outside the lake)"
_NEEDED_NOW = (Part.LIVE, Part.VECTORS_LIVE)

# Files, bytes and small files, by folder, part and storage class.
UsageCounts = defaultdict[tuple[str, Part | None, str | None], list[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageShare:
    """Objects of one part and one storage class; for what belongs to no table, `part` is `None`.

    `folder` is the table, or the top of the path. `small_count`: where no log is read, how many of
    them are small files of data.
    """

    part: Part | None
    storage_class: str | None
    file_count: int
    size_bytes: int
    folder: str
    small_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableShares:
    """One table's folder, to the byte. `version` is `None` where the log cannot be read; `problem`
    then says why.

    `missing`: the newest version reads them, and storage does not have them. `resized`: they are
    there with another size than the log has. `unsettled_count`: not in the report, but too new for
    it. `outside_count`: outside the lake, where the report does not look.
    """

    table: str
    version: int | None
    retention_ms: int | None
    shares: tuple[UsageShare, ...]
    missing: tuple[str, ...] = ()
    resized: tuple[str, ...] = ()
    unsettled_count: int = 0
    outside_count: int = 0
    problem: str = ""

    @property
    def file_count(self) -> int:
        """All objects in the table's folder, those of tables inside it left out."""
        return sum(share.file_count for share in self.shares)

    @property
    def size_bytes(self) -> int:
        """Their bytes."""
        return sum(share.size_bytes for share in self.shares)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation:
    """The tables, sorted by name, and what belongs to none; all of it together is the inventory."""

    tables: tuple[TableShares, ...]
    unclaimed: tuple[UsageShare, ...]

    @property
    def file_count(self) -> int:
        """All objects of the inventory."""
        return sum(each.file_count for each in (*self.tables, *self.unclaimed))

    @property
    def size_bytes(self) -> int:
        """Their bytes."""
        return sum(each.size_bytes for each in (*self.tables, *self.unclaimed))

    @property
    def list_request_count(self) -> int:
        """LIST requests of a full listing of all tables' folders.

        Source: AWS, ListObjectsV2: 1,000 keys per page.
        """
        return sum(-(-table.file_count // PAGE_KEYS) for table in self.tables)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTables:
    """The tables of a lake, whose objects have keys that begin with `lake_prefix` (empty, or ending
    in `/`).

    `unread` are tables whose log cannot be read, with the reason. Declared tables load from the
    prefixes in `landed`.
    """

    files: Sequence[TableFiles]
    unread: Mapping[str, str] = field(default_factory=dict[str, str])
    landed: tuple[str, ...] = ()
    lake_prefix: str = ""


def reconcile(tables: KnownTables, listing: Listing, *, now_ms: int) -> Reconciliation:
    """Assigns each object of an inventory to one part of one table, or to none.

    The tables must be read after the inventory was made: then a file that a commit removed
    meanwhile has a tombstone, and one that it added is no orphan.
    """
    lake_prefix, settled_ms = tables.lake_prefix, listing.settled_ms
    known = [*(each.table for each in tables.files), *tables.unread]
    lent = {name for each in tables.files for name in each.borrowed(known)}
    unplaced = {last for each in tables.files for last in each.unplaced}
    uses = OtherUses(lent=lent, unplaced=unplaced, landed=tables.landed)
    by_key = {
        each.table: _Table(each, ObjectClassifier(each, uses, now_ms=now_ms))
        for each in tables.files
    }
    owners, seen = Owners(known), set[str]()
    cells: UsageCounts = defaultdict(lambda: [0, 0, 0])
    for each in listing.objects:
        name = each.key.removeprefix(lake_prefix) if each.key.startswith(lake_prefix) else None
        owner = None if name is None else owners.table_of(name)
        if name in lent and is_current(each):
            seen.add(name)
        if name is not None and owner in by_key:
            cell = cells[owner, by_key[owner].take(name, each), each.storage_class]
        else:
            folder = _OUTSIDE if name is None else owner or _top_folder(name)
            cell = cells[folder, Part.UNREAD if owner else None, each.storage_class]
            cell[2] += _is_small_data(each)
        cell[0] += 1
        cell[1] += each.size_bytes
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
    """A table's books, and what of its newest version was not seen yet, or has another size."""

    def __init__(self, table_files: TableFiles, classifier: ObjectClassifier) -> None:
        self._table_files, self._classifier = table_files, classifier
        self._unseen: dict[str, Reference] = {**table_files.live, **table_files.vectors}
        self._resized: list[str] = []

    def take(self, name: str, each: StoredObject) -> Part:
        """The part that an object of the table is of; `name` is relative to the lake."""
        own = name.removeprefix(self._table_files.table).removeprefix("/")
        part = self._classifier.part_of(own, each)
        if part in _NEEDED_NOW:
            self._unseen.pop(own, None)
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
        """The table's shares, once all objects were taken.

        `seen` are the files outside its folder that the inventory has.
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
            resized=tuple(sorted(self._resized)),
            unsettled_count=len(written) - len(missing),
            outside_count=len(table_files.outside),
        )


def _shares(cells: UsageCounts) -> Iterable[UsageShare]:
    order = {part: place for place, part in enumerate([None, *Part])}
    for folder, part, kind in sorted(
        cells, key=lambda cell: (cell[0], order[cell[1]], cell[2] or "")
    ):
        count, size, small = cells[folder, part, kind]
        yield UsageShare(
            part=part,
            folder=folder,
            storage_class=kind,
            file_count=count,
            size_bytes=size,
            small_count=small,
        )


def _is_small_data(each: StoredObject) -> bool:
    hidden = "/_" in f"/{each.key}" or "/." in each.key
    return each.size_bytes < _SMALL_BYTES and not each.is_dir and not hidden and is_current(each)


def _top_folder(name: str) -> str:
    """The top two folders of a name, like `landing/weather/`.

    Empty folders are omitted; an object at the lake's root stands for itself.
    """
    *folders, last = name.split("/")
    return "".join(f"{folder}/" for folder in folders[:2]) or last
