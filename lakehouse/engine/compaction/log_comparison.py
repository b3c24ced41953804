"""Compares the rows before and after a compaction by the log alone, without reading data files.

Row counts are compared by partition. In partitions without deleted rows, so are the minima, maxima
and null counts of the columns that have them in all files of both sides. If they are equal, each
partition has as many rows as before, provided that the writers counted correctly. A value that
changed within the bounds of its column is not detected. A difference does not prove that rows
differ, because two writers may spell a bound differently. After a difference, or if a row count is
unknown, Spark compares every row (`verify`).
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from lakehouse.core.delta.partition_values import TypedPartition, by_name, typed_partition
from lakehouse.core.delta.snapshot import DataFile, Snapshot
from lakehouse.engine.compaction.row_hashes_spark import Side
from lakehouse.engine.delta_log.statistics import read_statistics
from lakehouse.engine.store import Store

# How the statistics of several files are combined. Source: PROTOCOL.md, "Per-file Statistics".
_FOLDS: Mapping[str, Any] = {"minValues": min, "maxValues": max, "nullCount": sum}

# The kind of a statistic, and the path of its column.
StatisticKey = tuple[str, tuple[str, ...]]
# The row count of a partition, and the combined statistics of its files.
PartitionFacts = tuple[int, Mapping[StatisticKey, Any]]


def equal_by_log(
    store: Store, snapshot: Snapshot, removed: Sequence[Side], added: Sequence[Side]
) -> int | None:
    """The number of rows after the compaction if the log shows no difference, otherwise `None`.

    `removed` and `added` have an entry for each commit of the compaction.
    """
    try:
        sides = [*removed, *added]
        paths = {file.path for side in sides for file in side.files}
        statistics = read_statistics(store, snapshot.table, {side.version for side in sides}, paths)
        removed_facts = _by_partition(snapshot, removed, statistics)
        added_facts = _by_partition(snapshot, added, statistics)
    except Exception:  # the comparison of every row, which follows, raises a storage error again
        return None
    if removed_facts is None or added_facts is None or removed_facts.keys() != added_facts.keys():
        return None
    for partition, (row_count, combined) in removed_facts.items():
        other_count, other_combined = added_facts[partition]
        if row_count != other_count:
            return None
        shared = combined.keys() & other_combined.keys()
        if any(combined[each] != other_combined[each] for each in shared):
            return None
    return sum(row_count for row_count, _ in added_facts.values())


def row_counts(snapshot: Snapshot, sides: Sequence[Side]) -> Mapping[TypedPartition, int] | None:
    """The number of rows of each partition with rows; `None` if a file's row count is unknown."""
    columns = by_name(snapshot.columns)
    counts = Counter[TypedPartition]()
    for file in (file for side in sides for file in side.files):
        if file.row_count is None:
            return None
        row_count = file.row_count - file.deleted_row_count
        if row_count:
            counts[typed_partition(file.partition, columns)] += row_count
    return counts


def _by_partition(
    snapshot: Snapshot, sides: Sequence[Side], statistics: Mapping[tuple[int, str], str | None]
) -> Mapping[TypedPartition, PartitionFacts] | None:
    """The facts of each partition with rows; `None` if a file's row count is unknown."""
    columns = by_name(snapshot.columns)
    files = dict[TypedPartition, list[tuple[DataFile, Mapping[str, Any]]]]()
    for side in sides:
        for file in side.files:
            text = statistics.get((side.version, file.path)) or "{}"
            parsed = json.loads(text, parse_float=Decimal)
            files.setdefault(typed_partition(file.partition, columns), []).append((file, parsed))
    facts: dict[TypedPartition, PartitionFacts] = {}
    for partition, members in files.items():
        row_count = 0
        are_exact = True
        for file, parsed in members:
            if file.row_count is None:
                return None
            row_count += file.row_count - file.deleted_row_count
            # A deleted row may have contained the minimum of its file: only row counts are exact.
            if file.deletion_vector is not None or not parsed.get("tightBounds", True):
                are_exact = False
        if row_count:
            combined = _combined([parsed for _, parsed in members]) if are_exact else {}
            facts[partition] = row_count, combined
    return facts


def _combined(statistics: Sequence[Mapping[str, Any]]) -> Mapping[StatisticKey, Any]:
    """Minimum, maximum and null count of each column for which all files have statistics."""
    combined: dict[StatisticKey, Any] = {}
    for kind, fold in _FOLDS.items():
        by_file = [dict(_leaves(each.get(kind, {}))) for each in statistics]
        for column in set.intersection(*map(set, by_file)):
            combined[kind, column] = fold([each[column] for each in by_file])
    return combined


def _leaves(
    values: Mapping[str, Any], parents: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The path and the value of each column in nested statistics. Null values are omitted."""
    for name, value in values.items():
        path = (*parents, name)
        if isinstance(value, Mapping):
            yield from _leaves(value, path)
        elif value is not None:
            yield path, value
