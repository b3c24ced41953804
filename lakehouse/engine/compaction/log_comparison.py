"""Compares the rows before and after a compaction by the log alone, without reading data files.

Row counts, minima, maxima and null counts are compared by partition. If they are equal, no row was
lost or duplicated, provided that the writers counted correctly. A value that changed within the
bounds of its column is not detected. A difference does not prove that rows differ, because two
writers may spell a bound differently; in this case every row is compared (`verify`).
"""

import json
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

PartitionFacts = tuple[int, Mapping[tuple[str, tuple[str, ...]], Any]]


def equal_by_log(
    store: Store, snapshot: Snapshot, removed: Sequence[Side], added: Sequence[Side]
) -> int | None:
    """The row count of both sides if the log shows that they are equal, otherwise `None`."""
    try:
        sides = [*removed, *added]
        paths = {file.path for side in sides for file in side.files}
        statistics = read_statistics(store, snapshot.table, {side.version for side in sides}, paths)
        before, after = (_by_partition(snapshot, each, statistics) for each in (removed, added))
    except Exception:  # now every row is compared, which raises a storage error again
        return None
    if before is None or after is None or before.keys() != after.keys():
        return None
    for partition, (row_count, facts) in before.items():
        other_count, others = after[partition]
        if row_count != other_count or any(
            facts[each] != others[each] for each in facts.keys() & others.keys()
        ):
            return None
    return sum(row_count for row_count, _ in after.values())


def _by_partition(
    snapshot: Snapshot, sides: Sequence[Side], statistics: Mapping[tuple[int, str], str | None]
) -> Mapping[TypedPartition, PartitionFacts] | None:
    """Row count and column facts by partition; `None` if a file's row count is unknown."""
    columns = by_name(snapshot.columns)
    files = dict[TypedPartition, list[tuple[DataFile, Mapping[str, Any]]]]()
    for side in sides:
        for file in side.files:
            parsed = json.loads(
                statistics.get((side.version, file.path)) or "{}", parse_float=Decimal
            )
            files.setdefault(typed_partition(file.partition, columns), []).append((file, parsed))
    facts: dict[TypedPartition, PartitionFacts] = {}
    for partition, members in files.items():
        row_count = 0
        for file, _ in members:
            if file.row_count is None:
                return None
            row_count += file.row_count - file.deleted_row_count
        if row_count:
            # A deleted row may have held the minimum of its file.
            are_exact = all(
                file.deletion_vector is None and parsed.get("tightBounds", True)
                for file, parsed in members
            )
            column_facts = _of_columns([parsed for _, parsed in members]) if are_exact else {}
            facts[partition] = row_count, column_facts
    return facts


def _of_columns(
    statistics: Sequence[Mapping[str, Any]],
) -> Mapping[tuple[str, tuple[str, ...]], Any]:
    """Minimum, maximum and null count of each column for which all files have statistics."""
    facts: dict[tuple[str, tuple[str, ...]], Any] = {}
    for kind, fold in _FOLDS.items():
        by_file = [dict(_leaves(each.get(kind, {}))) for each in statistics]
        for column in set.intersection(*map(set, by_file)):
            facts[kind, column] = fold([each[column] for each in by_file])
    return facts


def _leaves(
    values: Mapping[str, Any], parents: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in values.items():
        path = (*parents, name)
        if isinstance(value, Mapping):
            yield from _leaves(value, path)
        elif value is not None:
            yield path, value
