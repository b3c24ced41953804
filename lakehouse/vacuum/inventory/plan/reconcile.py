"""Assigns every object of an inventory to one `Part` of one table, or to no table.

This takes one pass over the objects. The memory that it needs depends on the number of files in the
tables' logs, but not on the number of objects.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from lakehouse.base.stored_objects import KnownObjects, Part, StoredObject
from lakehouse.vacuum.inventory.plan.table_files import Owners, Reference, TableFiles

_LOG = "_delta_log/"
_CHANGES = "_change_data/"
# Source: PROTOCOL.md, "Deletion Vector File Storage Format", "Delta Log Entries", "Checkpoints",
# "Version Checksum File".
_VECTOR = re.compile(r"(?:.*/)?deletion_vector_[0-9a-f-]{36}\.bin", re.DOTALL)
_LOG_PARTS = (
    (re.compile(r"\d{20}\.json|_(?:staged_)?commits/.*\.json"), Part.LOG_COMMITS),
    (re.compile(r"\d{20}\.checkpoint\..*"), Part.LOG_CHECKPOINTS),
    (re.compile(r"_sidecars/[^.].*"), Part.LOG_SIDECARS),
    (re.compile(r"\d{20}\.crc"), Part.LOG_CHECKSUMS),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherUses:
    """What other tables use in a table's folder.

    - `borrowed`: files that other tables read (names relative to the lake).
    - `unplaced`: base names of further files that other tables may read (`TableFiles.unplaced`).
    - `landed`: prefixes, relative to the lake, that declared tables load from.
    """

    borrowed: Set[str] = frozenset()
    unplaced: Set[str] = frozenset()
    landed: tuple[str, ...] = ()

    def may_read(self, table_files: TableFiles, name: str) -> bool:
        """Whether another table reads, or may read, a file of this table."""
        is_borrowed = table_files.name_in_lake(name) in self.borrowed
        return is_borrowed or name.rpartition("/")[2] in self.unplaced


def is_current(each: StoredObject) -> bool:
    """Whether reading the key returns this object; always true in a report without versions."""
    return each.is_latest is not False and not each.is_delete_marker


def archived_table(name: str) -> str | None:
    """The table whose archive (`archive/<layer>/<name>/`) a file is in; `None` for other files.

    `name` is relative to the lake.
    """
    top, *below = name.split("/", 3)
    return "/".join(below[:2]) if top == "archive" and len(below) == 3 else None


def archived_part(each: StoredObject) -> Part:
    """The `Part` to which an object in a table's archive belongs."""
    if each.is_delete_marker:
        return Part.DELETE_MARKERS
    return Part.ARCHIVED if is_current(each) else Part.NONCURRENT


class ObjectClassifier:
    """Assigns each object in a table's folder to a `Part`.

    A removed file is past the retention if it was removed before the horizon; a file that was never
    in the table, if it was last modified before the horizon. The horizon is `now_ms` minus the
    retention, or the argument `horizon_ms` if the argument is earlier. If the retention is unknown,
    the horizon is 0, and no file is past the retention.
    """

    def __init__(
        self,
        table_files: TableFiles,
        other_uses: OtherUses,
        *,
        now_ms: int,
        horizon_ms: int | None = None,
    ) -> None:
        self._table_files = table_files
        self._borrowed = other_uses.borrowed
        self._unplaced = other_uses.unplaced | table_files.unplaced
        self._landed = other_uses.landed
        kept_since_ms = 0 if table_files.retention_ms is None else now_ms - table_files.retention_ms
        self.horizon_ms = kept_since_ms if horizon_ms is None else min(kept_since_ms, horizon_ms)
        # Hidden files are the files that Delta's own listing omits, and `metadata/`, which Apache
        # XTable and UniForm write for Iceberg readers. `_delta_index` also counts as hidden, though
        # Delta lists it: Databricks stores indexes of live files there.
        # Source: delta-io/delta v4.4.0, `DeltaTableUtils.isHiddenDirectory`
        partitions = [f"{re.escape(column)}=" for column in table_files.partition_columns]
        listed = "|".join(["_change_data(?:/|$)", *partitions])
        self._hidden = re.compile(rf"metadata/|(?:^|.*/)(?!{listed})[._]", re.DOTALL)

    def part_of(self, name: str, each: StoredObject) -> Part:
        """The `Part` to which an object belongs; `name` is relative to the table."""
        if each.is_delete_marker:
            return Part.DELETE_MARKERS
        if not is_current(each):
            return Part.NONCURRENT
        if name in self._table_files.live:
            return Part.LIVE
        if name in self._table_files.vectors:
            return Part.VECTORS_LIVE
        if name.startswith(_LOG):
            return _log_part(name)
        if each.is_dir:
            return Part.FOLDERS
        lake_name = self._table_files.name_in_lake(name)
        may_be_borrowed = bool(self._unplaced) and name.rpartition("/")[2] in self._unplaced
        if lake_name in self._borrowed or may_be_borrowed:
            return Part.LENT
        if lake_name.startswith(self._landed):
            return Part.LANDED
        return self._not_read_now(name, each)

    def _not_read_now(self, name: str, each: StoredObject) -> Part:
        """The `Part` of a file that the newest version does not read."""
        table_files = self._table_files
        if name in table_files.tombstones:
            is_kept = self._is_kept(table_files.tombstones[name])
            return Part.TOMBSTONED_KEPT if is_kept else Part.TOMBSTONED_PAST
        if name in table_files.removed_vectors:
            is_kept = self._is_kept(table_files.removed_vectors[name])
            return Part.VECTORS_KEPT if is_kept else Part.VECTORS_DEAD
        if name.startswith(_CHANGES):
            return Part.CHANGE_DATA if self._is_kept(each.modified_ms) else Part.CHANGE_DATA_PAST
        if self._hidden.match(name):
            return Part.HIDDEN
        if self._is_kept(each.modified_ms):
            return Part.ORPHANED_YOUNG
        return Part.VECTORS_DEAD if _VECTOR.fullmatch(name) else Part.ORPHANED_OLD

    def _is_kept(self, ms: int | None) -> bool:
        """Whether a time is within the retention, or unknown."""
        return ms is None or ms >= self.horizon_ms


def _log_part(name: str) -> Part:
    for pattern, part in _LOG_PARTS:
        if pattern.fullmatch(name, len(_LOG)):
            return part
    return Part.LOG_OTHER


# Below this size, a data file counts as small if its table's log is not read: three quarters of
# 16 MiB, the smallest target size that is chosen automatically.
_SMALL_BYTES = 12 * 1024 * 1024
_NEEDED_NOW = (Part.LIVE, Part.VECTORS_LIVE)

# Folder, part and storage class, as in `UsageShare`.
_UsageKey = tuple[str, Part | None, str | None]


@dataclass(slots=True)
class _Usage:
    """Counts of the objects with one `_UsageKey`."""

    file_count: int = 0
    size_bytes: int = 0
    small_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageShare:
    """Objects of one part and one storage class.

    `part` is `None` if the objects belong to no table. `folder` is the table or, for objects of no
    table, `_top_folder`. `small_count` is the number of small data files; it is
    counted only for objects of no table, or of a table whose log cannot be read.
    """

    part: Part | None
    storage_class: str | None
    file_count: int
    size_bytes: int
    folder: str
    small_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableShares:
    """All objects in one table's folder and in its archive's folder, by part.

    - `version` is `None` if the log cannot be read. In this case, `problem` is the reason.
    - `missing`: live files (files that the newest version reads) that are not in storage, without
      those behind a symbolic link, which no report shows. Names are relative to the table; for
      files in other folders of the lake, to the lake.
    - `archived`: live files that must be restored before they can be read.
    - `cold_files`: maps live files that cost a fee to read (`StoredObject.is_cold`) to their class.
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
        """The total size of the objects that `file_count` counts."""
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
        """The total size of the objects in the inventory."""
        return sum(each.size_bytes for each in (*self.tables, *self.unclaimed))


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTables:
    """The tables of a lake.

    The lake's keys begin with `lake_prefix`, which is empty or ends in `/`. `unread` maps tables
    whose log cannot be read to the reason. Declared tables load from the prefixes in `landed`.
    """

    files: Sequence[TableFiles]
    unread: Mapping[str, str] = field(default_factory=dict[str, str])
    landed: tuple[str, ...] = ()
    lake_prefix: str = ""


def reconcile(tables: KnownTables, inventory: KnownObjects, *, now_ms: int) -> Reconciliation:
    """Assigns each object of an inventory of the lake to one `Part` of one table, or to no table.

    The tables' logs must be read after the inventory was created. Then, files of the inventory that
    were removed in the meantime have a tombstone, and files that were added are not taken for
    orphans.
    """
    table_keys = [*(each.table for each in tables.files), *tables.unread]
    borrowed = {name for each in tables.files for name in each.borrowed(table_keys)}
    unplaced = {last for each in tables.files for last in each.unplaced}
    uses = OtherUses(borrowed=borrowed, unplaced=unplaced, landed=tables.landed)
    by_key = {
        each.table: _Table(each, ObjectClassifier(each, uses, now_ms=now_ms))
        for each in tables.files
    }
    owners = Owners(table_keys)
    borrowed_in_storage = set[str]()
    usages = defaultdict[_UsageKey, _Usage](_Usage)
    for each in inventory.objects:
        name = each.key.removeprefix(tables.lake_prefix)
        owner = owners.table_of(name)
        if name in borrowed and is_current(each):
            borrowed_in_storage.add(name)
        archived_of = archived_table(name) if owner is None else None
        if owner in by_key:  # in the folder of a table
            usage = usages[owner, by_key[owner].take(name, each), each.storage_class]
        elif archived_of in by_key:  # in the archive of a table
            usage = usages[archived_of, archived_part(each), each.storage_class]
        else:  # in no table, or in one whose log cannot be read
            part = Part.UNREAD if owner else None
            usage = usages[owner or _top_folder(name), part, each.storage_class]
            usage.small_count += _is_small_data(each)
        usage.file_count += 1
        usage.size_bytes += each.size_bytes
    shares = [*_shares(usages)]
    by_table = defaultdict[str, list[UsageShare]](list)
    for share in shares:
        if share.part is not None:
            by_table[share.folder].append(share)
    reconciled = [
        table.shares(by_table[key], borrowed_in_storage, settled_ms=inventory.settled_ms)
        for key, table in by_key.items()
    ]
    reconciled += [_unread(key, why, by_table[key]) for key, why in tables.unread.items()]
    return Reconciliation(
        tables=tuple(sorted(reconciled, key=lambda table: table.table)),
        unclaimed=tuple(share for share in shares if share.part is None),
    )


def _unread(table: str, why: str, shares: Sequence[UsageShare]) -> TableShares:
    return TableShares(
        table=table, version=None, retention_ms=None, shares=tuple(shares), problem=why
    )


class _Table:
    """Tracks which live files of a table are missing, archived, cold, or of another size."""

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
            logged_bytes = None if live is None else live.size_bytes
            if logged_bytes is not None and logged_bytes != each.size_bytes:
                self._resized.append(own)
        return part

    def shares(
        self, shares: Iterable[UsageShare], borrowed_in_storage: Set[str], *, settled_ms: int
    ) -> TableShares:
        """The table's shares, after all objects were taken.

        `borrowed_in_storage` are the borrowed files, of all tables, that the inventory contains.
        """
        table_files = self._table_files
        unseen = dict[str, Reference]()
        for name, reference in self._unseen.items():
            if f"{table_files.table}/{name}" not in borrowed_in_storage:
                unseen[name] = reference
        for name, reference in table_files.elsewhere.items():
            if name not in borrowed_in_storage:
                unseen[name] = reference
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


def _shares(usages: Mapping[_UsageKey, _Usage]) -> Iterable[UsageShare]:
    order = {part: index for index, part in enumerate([None, *Part])}
    keys = sorted(usages, key=lambda key: (key[0], order[key[1]], key[2] or ""))
    for folder, part, storage_class in keys:
        usage = usages[folder, part, storage_class]
        yield UsageShare(
            part=part,
            folder=folder,
            storage_class=storage_class,
            file_count=usage.file_count,
            size_bytes=usage.size_bytes,
            small_count=usage.small_count,
        )


def _is_small_data(each: StoredObject) -> bool:
    is_hidden = "/_" in f"/{each.key}" or "/." in each.key
    is_data = not each.is_dir and not is_hidden and is_current(each)
    return is_data and each.size_bytes < _SMALL_BYTES


def _top_folder(name: str) -> str:
    """The top two folders of a name, for example `landing/weather/`; at the root, the name."""
    *folders, last = name.split("/")
    return "".join(f"{folder}/" for folder in folders[:2]) or last
