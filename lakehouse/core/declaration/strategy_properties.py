"""The properties and the clustering to set or remove for a table's strategy and data layout.

The commit that sets properties also lists them in another property, the mark. Only marked
properties are removed again. So a property that a person sets by hand is kept, even if the strategy
would set another value.
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

    `left` has the properties that a person set to other values, which are kept.
    """

    set: Mapping[str, str] = field(default_factory=dict[str, str])
    unset: tuple[str, ...] = ()
    left: Mapping[str, str] = field(default_factory=dict[str, str])


def desired_properties(strategy: Strategy) -> dict[str, str]:
    """The properties that the strategy sets."""
    names: Mapping[type, str] = {OptimizedWrite: OPTIMIZE_WRITE, AutoCompaction: AUTO_COMPACT}
    return {names[type(strategy)]: "true"} if type(strategy) in names else {}


def property_changes(current: Mapping[str, str], desired: Mapping[str, str]) -> PropertyChanges:
    """The changes that give a table the desired properties and the mark.

    Properties that a person has set are kept.
    """
    pairs = [pair.partition("=") for pair in current.get(STRATEGY_MARK, "").split()]
    marked = {name: value for name, _, value in pairs}
    # This program sets only these two properties, so any other name in the mark is not from it.
    ours = [
        name
        for name in (OPTIMIZE_WRITE, AUTO_COMPACT)
        if name in marked and current.get(name) == marked[name]
    ]
    keep = {name: value for name, value in desired.items() if name in ours or name not in current}
    left = {
        name: current[name]
        for name, value in desired.items()
        if name not in keep and current[name] != value
    }
    mark = " ".join(f"{name}={value}" for name, value in sorted(keep.items()))
    wanted = {**keep, STRATEGY_MARK: mark} if mark else keep
    changed = {name: value for name, value in wanted.items() if current.get(name) != value}
    gone = {*ours, *current.keys() & {STRATEGY_MARK}} - wanted.keys()
    return PropertyChanges(set=changed, unset=tuple(sorted(gone)), left=left)


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

    Clustering that a person has set is kept.
    """
    mark = snapshot.properties.get(CLUSTERING_MARK)
    current = ",".join(snapshot.clustering_columns).casefold()
    if not isinstance(data_layout, LiquidClustering):
        is_ours = bool(current) and mark is not None and mark.casefold() == current
        return ClusteringChange(columns=() if is_ours else None, mark=None)
    if snapshot.partition_columns:
        by = ", ".join(snapshot.partition_columns)
        raise Refused(
            f"{snapshot.table}: LiquidClustering is declared, but the table is partitioned by {by}."
            " Use ZOrder, or a table without partitions."
        )
    wanted = ",".join(data_layout.columns)
    if current == wanted.casefold() or (current and mark is None):
        return ClusteringChange(columns=None, mark=mark)
    return ClusteringChange(columns=data_layout.columns, mark=wanted)
