"""Decides which clustering to set or remove for a table's data layout.

The commit that sets clustering columns also records them in a table property, the mark. Clustering
that a person set by hand has no mark, and is kept.
"""

from dataclasses import dataclass

from lakehouse.base.errors import Refused
from lakehouse.declare.compaction import DataLayout, LiquidClustering
from lakehouse.delta.snapshot import Snapshot

CLUSTERING_MARK = "lakehouse.clustering"


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
