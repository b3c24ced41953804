"""Counts the rows without a value in a required column, from the statistics in the log.

An unknown count is `None`, never zero.
"""

from collections.abc import Iterable, Mapping

from lakehouse.core.delta.snapshot import DataFile, Snapshot
from lakehouse.core.evolution.in_place import COLUMN_MAPPING

NullCounts = Mapping[str, Mapping[str, int]]


def required_missing(
    snapshot: Snapshot, required: Iterable[str], null_counts: NullCounts
) -> dict[str, int | None]:
    """The number of rows without a value, for each required column; `None` if unknown.

    `null_counts` maps file path and column name to the number of nulls. A file or column without
    statistics has no entry. If the table lacks a column, all rows of the table count.
    """
    return {name: _missing(snapshot, name, null_counts) for name in required}


def needs_statistics(snapshot: Snapshot, required: Iterable[str]) -> bool:
    """Whether `required_missing` needs null counts.

    Under column mapping, it does not use them, because the statistics may name the columns
    differently. The counts of columns other than partition columns are then unknown.
    """
    columns = {column.name for column in snapshot.columns} - {*snapshot.partition_columns}
    return not _is_mapped(snapshot) and any(name in columns for name in required)


def _missing(snapshot: Snapshot, name: str, null_counts: NullCounts) -> int | None:
    if name not in {column.name for column in snapshot.columns}:
        return snapshot.row_count
    is_partition_column = name in snapshot.partition_columns
    if not is_partition_column and _is_mapped(snapshot):
        return None
    total = 0
    for file in snapshot.files:
        if not is_partition_column:
            count = _nulls_in(file, null_counts.get(file.path, {}).get(name))
        elif dict(file.partition).get(name) is None:
            count = _live_rows(file)
        else:
            count = 0
        if count is None:
            return None
        total += count
    return total


def _live_rows(file: DataFile) -> int | None:
    return None if file.row_count is None else file.row_count - file.deleted_row_count


def _nulls_in(file: DataFile, null_count: int | None) -> int | None:
    """The number of nulls in the live rows of a file; `None` if unknown.

    The null counts in statistics include deleted rows. Source: PROTOCOL.md, "Per-file Statistics"
    """
    live = _live_rows(file)
    if null_count == 0 or live == 0:
        return 0
    if null_count is None or live is None:
        return None
    if null_count == file.row_count:  # all rows are null, also those that are not deleted
        return live
    return null_count if file.deletion_vector is None else None


def _is_mapped(snapshot: Snapshot) -> bool:
    return snapshot.properties.get(COLUMN_MAPPING, "none") != "none"
