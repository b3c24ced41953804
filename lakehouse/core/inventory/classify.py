"""The relation of an object in a table's folder to the table: the one answer that the counting and the vacuum share."""

import re
from collections.abc import Set

from lakehouse.core.inventory.objects import Part, StoredObject
from lakehouse.core.inventory.table_files import TableFiles

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


class Classifier:
    """Knows a table's books. Names in `lent` (relative to the lake) are read by other tables, too; so may be files whose last part is in
    `unplaced`. From the prefixes in `landed` declared tables load.

    What was removed or modified before `horizon_ms` is past the retention; by default that is the retention before `now_ms`. It is 0
    (nothing is past it) where the retention is unknown.
    """

    def __init__(
        self,
        table_files: TableFiles,
        lent: Set[str],
        *,
        now_ms: int,
        unplaced: Set[str],
        landed: tuple[str, ...],
        horizon_ms: int | None = None,
    ) -> None:
        self._table_files, self._lent, self._unplaced, self._landed = (
            table_files,
            lent,
            unplaced | table_files.unplaced,
            landed,
        )
        kept_since_ms = 0 if table_files.retention_ms is None else now_ms - table_files.retention_ms
        self.horizon_ms = kept_since_ms if horizon_ms is None else min(kept_since_ms, horizon_ms)
        # Hidden from Delta's own listing, or written by Apache XTable and UniForm for readers of Iceberg. Source: delta-io/delta v4.4.0,
        # `DeltaTableUtils.isHiddenDirectory`. Delta shows `_delta_index`, too, with Databricks' indexes of live files in it.
        spared = "|".join(
            [
                "_change_data(?:/|$)",
                *(f"{re.escape(column)}=" for column in table_files.partition_columns),
            ]
        )
        self._hidden = re.compile(rf"metadata/|(?:^|.*/)(?!{spared})[._]", re.DOTALL)

    def part_of(self, own: str, each: StoredObject) -> Part:
        """The part that the object `own` (its name relative to the table) is of."""
        if each.is_delete_marker:
            return Part.DELETE_MARKERS
        if not is_current(each):
            return Part.NONCURRENT
        if own in self._table_files.live:
            return Part.LIVE
        if own in self._table_files.vectors:
            return Part.VECTORS_LIVE
        if own.startswith(_LOG):
            return next(
                (part for rule, part in _LOG_PARTS if rule.fullmatch(own, len(_LOG))),
                Part.LOG_OTHER,
            )
        if each.is_dir:
            return Part.FOLDERS
        place = self._table_files.place_of(own)
        if place in self._lent or (self._unplaced and own.rpartition("/")[2] in self._unplaced):
            return Part.LENT
        if place.startswith(self._landed):
            return Part.LANDED
        return self._not_read_now(own, each)

    def _not_read_now(self, own: str, each: StoredObject) -> Part:
        table_files = self._table_files
        if own in table_files.stones:
            return (
                Part.TOMBSTONED_KEPT
                if self._kept(table_files.stones[own])
                else Part.TOMBSTONED_PAST
            )
        if own in table_files.removed_vectors:
            return (
                Part.VECTORS_KEPT
                if self._kept(table_files.removed_vectors[own])
                else Part.VECTORS_DEAD
            )
        if own.startswith(_CHANGES):
            return Part.CHANGE_DATA if self._kept(each.modified_ms) else Part.CHANGE_DATA_PAST
        if self._hidden.match(own):
            return Part.HIDDEN
        if self._kept(each.modified_ms):
            return Part.ORPHANED_YOUNG
        return Part.VECTORS_DEAD if _VECTOR.fullmatch(own) else Part.ORPHANED_OLD

    def _kept(self, ms: int | None) -> bool:
        """Whether a time is within the retention; one that is unknown is."""
        return ms is None or ms >= self.horizon_ms
