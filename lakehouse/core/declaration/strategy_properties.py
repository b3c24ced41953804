"""The properties and the clustering that a table has to get or to lose for its strategy and its data layout.

This program writes each property that it sets down in the table itself, in a property of its own (a mark) in the same commit, and takes
back only properties in that mark. So a property that a person sets by hand stays, also where a strategy would set it otherwise.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakehouse.core.declaration.compaction_policy import LiquidClustering, type_of_data_layout
from lakehouse.core.declaration.strategies import AutoCompaction, OptimizedWrite, type_of_strategy
from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.core.errors import Refused

OPTIMIZE_WRITE = "delta.autoOptimize.optimizeWrite"
AUTO_COMPACT = "delta.autoOptimize.autoCompact"
STRATEGY_MARK = "lakehouse.strategy"
CLUSTERING_MARK = "lakehouse.clustering"
MARKS = (STRATEGY_MARK, CLUSTERING_MARK)


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyChanges:
    """Properties to set and to unset. In `left` are properties that a person has set, and the strategy would set otherwise."""

    set: Mapping[str, str] = field(default_factory=dict[str, str])
    unset: tuple[str, ...] = ()
    left: Mapping[str, str] = field(default_factory=dict[str, str])


def desired_properties(strategy: type_of_strategy) -> dict[str, str]:
    """The properties that the strategy sets."""
    match strategy:
        case OptimizedWrite():
            return {OPTIMIZE_WRITE: "true"}
        case AutoCompaction():
            return {AUTO_COMPACT: "true"}
        case _:
            return {}


def property_changes(current: Mapping[str, str], desired: Mapping[str, str]) -> PropertyChanges:
    """The changes that give a table the `desired` properties and leave alone the ones that a person set; none where nothing differs.

    The mark is among them.
    """
    ours = {name: value for name, value in _marked(current).items() if current.get(name) == value}
    keep = {name: value for name, value in desired.items() if name in ours or name not in current}
    changed = {name: value for name, value in keep.items() if current.get(name) != value}
    gone = [name for name in ours if name not in keep]
    left = {name: current[name] for name, value in desired.items() if name not in keep and current[name] != value}
    mark = " ".join(f"{name}={value}" for name, value in sorted(keep.items()))
    if mark and current.get(STRATEGY_MARK) != mark:
        changed[STRATEGY_MARK] = mark
    if not mark and STRATEGY_MARK in current:
        gone.append(STRATEGY_MARK)
    return PropertyChanges(set=changed, unset=tuple(sorted(gone)), left=left)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteringChange:
    """The columns to cluster by (none: `CLUSTER BY NONE`), `None` where that stays, and the mark afterwards, `None` for none."""

    columns: tuple[str, ...] | None
    mark: str | None


def clustering_change(snapshot: Snapshot, data_layout: type_of_data_layout) -> ClusteringChange:
    """The change that gives the table the clustering of its policy, or takes back an earlier one; a person's clustering stays.

    Raises:
        Refused: it is to be clustered, and has partitions.
    """
    mark = snapshot.properties.get(CLUSTERING_MARK)
    ours = mark is not None and mark.casefold() == _spelt(snapshot.clustering_columns).casefold()
    if not isinstance(data_layout, LiquidClustering):
        return ClusteringChange(columns=() if ours and snapshot.clustering_columns else None, mark=None)
    if snapshot.partition_columns:
        raise Refused(
            f"{snapshot.table}: LiquidClustering is declared, and the table is partitioned by {', '.join(snapshot.partition_columns)}; "
            "accepted: a table without partitions, or ZOrder"
        )
    if _folded(snapshot.clustering_columns) == _folded(data_layout.columns):
        return ClusteringChange(columns=None, mark=mark)
    if snapshot.clustering_columns and mark is None:
        return ClusteringChange(columns=None, mark=None)
    return ClusteringChange(columns=data_layout.columns, mark=_spelt(data_layout.columns))


def _marked(current: Mapping[str, str]) -> dict[str, str]:
    """The properties in the mark; a part that cannot be read was not written by us."""
    pairs = (pair.partition("=") for pair in current.get(STRATEGY_MARK, "").split())
    return {name: value for name, sign, value in pairs if sign and name in (OPTIMIZE_WRITE, AUTO_COMPACT)}


def _folded(columns: tuple[str, ...]) -> list[str]:
    return [column.casefold() for column in columns]


def _spelt(columns: tuple[str, ...]) -> str:
    return ",".join(columns)
