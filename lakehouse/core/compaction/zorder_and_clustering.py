"""Z-order and liquid clustering: which files are out of order, and when a rewrite pays off.

Both rewrite whole partitions. So a rewrite waits until enough is out of order: a quarter of a
partition's bytes, or as many files as a plain compaction waits for, but at least two files. With a
quarter, a byte is rewritten four times while its partition doubles, instead of with each batch.

The log shows the order, since a commit names the columns in its operationParameters. A file that is
older than the log counts as ordered if a commit ordered rows by the same columns and left no files
for a later run, and no later commit ordered rows by other columns.

Source: delta-io/delta v4.4.0, `OptimizeTableStrategy.scala` (ZOrderStrategy, ClusteringStrategy),
`OptimizeTableCommand.scala` (validateZorderByColumns), `ZCube.scala`.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import NamedTuple

from lakehouse.core.compaction.bins import (
    Bin,
    Clustering,
    PartitionPlan,
    PlanningFacts,
    Rewrite,
    ZOrdering,
    files_added,
    pack,
)
from lakehouse.core.compaction.run_bounds import (
    is_warm,
    keeps_cores_busy,
    one_run,
    partition_plans,
)
from lakehouse.core.compaction.target_size import comparable_names
from lakehouse.core.declaration.compaction_policy import LiquidClustering, ZOrder
from lakehouse.core.delta.snapshot import DataFile, Snapshot
from lakehouse.core.errors import Refused
from lakehouse.core.reasons import Reason

# DeltaSQLConf: `optimize.clustering.mergeStrategy.minCubeSize.threshold` and `.targetCubeSize`.
_FULL_CUBE_BYTES = 100 * 1024**3
_BIN_BYTES = 150 * 1024**3
# DataSkippingReader: `delta.dataSkippingNumIndexedCols`.
_INDEXED_COLUMNS = 32


def plan_zordering(facts: PlanningFacts, wanted: ZOrder) -> Rewrite:
    """The partitions to order along the columns, or the reason for doing nothing.

    Raises:
        Refused: Delta cannot order by a column: it is not in the table, is a partition column, or
            has no statistics.
    """
    _check_columns(facts.snapshot, wanted.columns)
    columns = comparable_names(wanted.columns)
    changed = [file for file in facts.snapshot.files if not _is_in_order(file, facts, columns)]
    changed_paths = {file.path for file in changed}

    def bins_of(files: Sequence[DataFile]) -> tuple[Bin, ...]:
        moved = [file for file in files if file.path in changed_paths]
        return (
            pack(files, facts.snapshot.columns, up_to_bytes=_bytes(files), least_files=1)
            if _pays_off(facts, moved, files)
            else ()
        )

    plans, warm = partition_plans(facts, bins_of)
    statement = ZOrdering(columns=wanted.columns, up_to_bytes=facts.policy.target_file_bytes)
    while statement.up_to_bytes > 1 and not keeps_cores_busy(
        facts, plans, added=partial(files_added, statement)
    ):
        statement = replace(statement, up_to_bytes=statement.up_to_bytes // 2)
    numbers = _numbers(facts, wanted.columns, changed) | {"bound": "all "}
    if not plans:
        reason = Reason.ALL_WARM if warm else Reason.IN_ORDER
        return Rewrite(statement=statement, reason=reason, numbers={**numbers, "warm": warm})
    bins, files_left = one_run(facts, plans)
    return Rewrite(
        statement=statement,
        reason=Reason.OUT_OF_ORDER,
        bins=bins,
        files_left=files_left,
        numbers=numbers,
    )


def plan_clustering(facts: PlanningFacts, wanted: LiquidClustering) -> Rewrite:
    """The OPTIMIZE of a table with liquid clustering, or the reason for doing nothing.

    The figures are exact, except for the files added, if two conditions hold: all files outside of
    full cubes fit into one bin (150 GiB), and the log shows for every file whether it was
    clustered. Otherwise they are upper bounds, and the sentence says so.

    Raises:
        Refused: the table has partitions, which cannot be clustered.
    """
    snapshot = facts.snapshot
    if snapshot.partition_columns:
        raise Refused(
            f"plan of {snapshot.table}: LiquidClustering cannot plan a table with partitions. "
            "Use ZOrder, or a table without partitions"
        )
    statement = Clustering(columns=wanted.columns, up_to_bytes=facts.policy.target_file_bytes)
    if comparable_names(snapshot.clustering_columns) != comparable_names(wanted.columns):
        numbers = _numbers(facts, wanted.columns, []) | {
            "declared": ", ".join(snapshot.clustering_columns) or "nothing"
        }
        return Rewrite(statement=statement, reason=Reason.NOT_CLUSTERED_YET, numbers=numbers)
    by_cube = _by_cube(facts)
    loose = by_cube.loose
    candidates = [*loose, *by_cube.in_open_cubes]
    exact = not by_cube.has_unknown and _bytes(candidates) <= _BIN_BYTES
    numbers = _numbers(facts, wanted.columns, loose) | {"bound": "" if exact else "at most "}
    plan = PartitionPlan(files=snapshot.files, bins=(Bin(partition=(), files=tuple(candidates)),))
    if not _pays_off(facts, loose, candidates):
        return Rewrite(statement=statement, reason=Reason.IN_ORDER, numbers=numbers)
    if is_warm(facts, plan):
        return Rewrite(statement=statement, reason=Reason.ALL_WARM, numbers={**numbers, "warm": 1})
    return Rewrite(statement=statement, reason=Reason.OUT_OF_ORDER, bins=plan.bins, numbers=numbers)


def _check_columns(snapshot: Snapshot, columns: Sequence[str]) -> None:
    """Refuses columns by which Delta cannot order; the message names the possible ones."""
    names = {column.name.lower(): column for column in snapshot.columns}
    partitions = {name.lower() for name in snapshot.partition_columns}
    indexed = {name.lower() for name in _columns_with_statistics(snapshot)}
    for name in columns:
        lower_name = name.lower()
        if lower_name not in names:
            why = "is not a column of the table"
        elif "`" in name:
            why = "has a backtick, and Delta cannot order by such a name"
        elif lower_name in partitions:
            why = "is a partition column, so each file has a single value of it"
        elif lower_name not in indexed:
            why = "has no statistics, so no order could ever skip a file"
        else:
            continue
        accepted = ", ".join(
            column.name
            for column in snapshot.columns
            if column.name.lower() in indexed and "`" not in column.name
        )
        raise Refused(
            f"plan of {snapshot.table}: ZOrder.columns holds {name!r}, which {why}. "
            f"Use any of: {accepted}"
        )


def _columns_with_statistics(snapshot: Snapshot) -> list[str]:
    """The columns with statistics: the first leaves of the data columns, in order.

    Source: delta-io/delta v4.4.0, `StatisticsCollection.scala`, getIndexedColumns.
    """
    data = [column for column in snapshot.columns if column.name not in snapshot.partition_columns]
    if chosen := snapshot.properties.get("delta.dataSkippingStatsColumns"):
        named = {name.strip().strip("`").lower() for name in chosen.split(",")}
        return [column.name for column in data if column.name.lower() in named]
    limit = int(snapshot.properties.get("delta.dataSkippingNumIndexedCols", _INDEXED_COLUMNS))
    counts = [
        max(1, each.type.count(":") - each.type.count(":struct<"))
        if each.type.startswith("struct<")
        else 1
        for each in data
    ]
    leaves_before = accumulate(counts, initial=0)
    return [
        column.name
        for column, before in zip(data, leaves_before, strict=False)
        if limit < 0 or before < limit
    ]


def _pays_off(facts: PlanningFacts, changed: Sequence[DataFile], among: Sequence[DataFile]) -> bool:
    """Whether enough bytes or files are out of order, and at least two files."""
    enough = len(changed) >= facts.policy.min_small_files or 4 * _bytes(changed) >= _bytes(among)
    return enough and len(changed) >= 2


def _is_in_order(file: DataFile, facts: PlanningFacts, columns: tuple[str, ...]) -> bool:
    if file.deletion_vector is not None:
        return False
    if (arranged := facts.write_history.arranged.get(file.path)) is not None:
        return arranged[0] == columns
    return (
        not file.compacted
        and file.path not in facts.write_history.written_ms
        and facts.write_history.settled == columns
    )


class _ByCube(NamedTuple):
    """Files in no cube, and files in cubes that are not full.

    `has_unknown`: a file in `loose` is older than the log, so it may be in a cube.
    """

    loose: list[DataFile]
    in_open_cubes: list[DataFile]
    has_unknown: bool


def _by_cube(facts: PlanningFacts) -> _ByCube:
    """The files that clustering may rewrite.

    A file with a deletion vector remains in its cube. Cubes that are ordered by other columns are
    not rewritten. Neither is a single cube, if there are no loose files.
    """
    columns = comparable_names(facts.snapshot.clustering_columns)
    loose = list[DataFile]()
    cubed = list[tuple[int, DataFile]]()
    has_unknown = False
    for file in facts.snapshot.files:
        arranged = facts.write_history.arranged.get(file.path)
        if arranged is None:
            is_known = file.compacted or file.path in facts.write_history.written_ms
            has_unknown = has_unknown or not is_known
            loose.append(file)
        elif arranged[0] == columns:
            cubed.append((arranged[1], file))
    sizes: Counter[int] = Counter()
    for cube, file in cubed:
        sizes[cube] += file.size_bytes
    open_cubes = [(cube, file) for cube, file in cubed if sizes[cube] < _FULL_CUBE_BYTES]
    if not loose and len({cube for cube, _ in open_cubes}) < 2:
        return _ByCube([], [], has_unknown)
    return _ByCube(loose, [file for _, file in open_cubes], has_unknown)


def _numbers(
    facts: PlanningFacts, columns: Sequence[str], changed: Sequence[DataFile]
) -> dict[str, object]:
    return {
        "columns": ", ".join(columns),
        "changed": len(changed),
        "changed_bytes": _bytes(changed),
        "threshold": facts.policy.min_small_files,
    }


def _bytes(files: Sequence[DataFile]) -> int:
    return sum(file.size_bytes for file in files)
