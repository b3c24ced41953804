"""Decides which properties and clustering to set or remove for a table's strategy and data layout.

The commit that sets them also records them in another property, the mark: `lakehouse.strategy` for
properties, `lakehouse.clustering` for clustering columns. What a person sets by hand is not in the
mark, and is kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakehouse.core.declaration.compaction_policy import DataLayout, LiquidClustering
from lakehouse.core.declaration.strategies import AutoCompaction, OptimizedWrite, Strategy
from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.core.errors import Refused

OPTIMIZE_WRITE = "delta.autoOptimize.optimizeWrite"
AUTO_COMPACT = "delta.autoOptimize.autoCompact"
STRATEGY_MARK = "lakehouse.strategy"
CLUSTERING_MARK = "lakehouse.clustering"
MARKS = (STRATEGY_MARK, CLUSTERING_MARK)


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyChanges:
    """Properties to set and to unset.

    `left` contains the properties that a person set to another value than the strategy's. They are
    kept.
    """

    set: Mapping[str, str] = field(default_factory=dict[str, str])
    unset: tuple[str, ...] = ()
    left: Mapping[str, str] = field(default_factory=dict[str, str])


def desired_properties(strategy: Strategy) -> dict[str, str]:
    """The properties that the strategy sets."""
    if isinstance(strategy, OptimizedWrite):
        return {OPTIMIZE_WRITE: "true"}
    if isinstance(strategy, AutoCompaction):
        return {AUTO_COMPACT: "true"}
    return {}


def property_changes(current: Mapping[str, str], desired: Mapping[str, str]) -> PropertyChanges:
    """The changes that give a table the desired properties and the mark.

    A property is kept if it is not in the mark, or has another value than in the mark: a person has
    set it.
    """
    pairs = [pair.partition("=") for pair in current.get(STRATEGY_MARK, "").split()]
    marked = {name: value for name, _, value in pairs}
    # This program sets only these two properties, so it ignores other names in the mark. A marked
    # property with another value than in the mark was changed by a person.
    own_names = [
        name
        for name in (OPTIMIZE_WRITE, AUTO_COMPACT)
        if name in marked and current.get(name) == marked[name]
    ]
    target = dict[str, str]()
    left = dict[str, str]()
    for name, value in desired.items():
        if name in own_names or name not in current:
            target[name] = value
        elif current[name] != value:
            left[name] = current[name]
    if target:
        target[STRATEGY_MARK] = " ".join(f"{name}={target[name]}" for name in sorted(target))
    changed = {name: value for name, value in target.items() if current.get(name) != value}
    removable = [name for name in (*own_names, STRATEGY_MARK) if name in current]
    unset = sorted(name for name in removable if name not in target)
    return PropertyChanges(set=changed, unset=tuple(unset), left=left)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteringChange:
    """A change of a table's clustering.

    - `columns`: the columns to cluster by. Empty means `CLUSTER BY NONE`; `None` means no change.
    - `mark`: the value of the mark after the change, or `None` for no mark.
    """

    columns: tuple[str, ...] | None
    mark: str | None


def clustering_change(snapshot: Snapshot, data_layout: DataLayout) -> ClusteringChange:
    """The change that gives the table the clustering of its policy, or removes an earlier one.

    Clustering without a mark was set by a person, and is kept. It is also kept if the policy has no
    LiquidClustering, and the mark names other columns.

    Raises:
        Refused: the policy has LiquidClustering, and the table has partitions.
    """
    mark = snapshot.properties.get(CLUSTERING_MARK)
    current = ",".join(snapshot.clustering_columns).casefold()
    if not isinstance(data_layout, LiquidClustering):
        is_ours = bool(current) and mark is not None and mark.casefold() == current
        return ClusteringChange(columns=() if is_ours else None, mark=None)
    if snapshot.partition_columns:
        names = ", ".join(snapshot.partition_columns)
        raise Refused(
            f"{snapshot.table}: LiquidClustering is declared, but the table is partitioned by"
            f" {names}. Use ZOrder, or a table without partitions."
        )
    desired = ",".join(data_layout.columns)
    is_set_by_hand = bool(current) and mark is None
    if current == desired.casefold() or is_set_by_hand:
        return ClusteringChange(columns=None, mark=mark)
    return ClusteringChange(columns=data_layout.columns, mark=desired)
