"""Classifies the objects in a table's folder. Inventories and vacuums share this classifier."""

import re
from collections.abc import Set
from dataclasses import dataclass

from lakehouse.core.inventory.objects import Part, StoredObject
from lakehouse.core.inventory.table_files import TableFiles

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
