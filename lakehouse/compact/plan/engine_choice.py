"""Chooses the engine that compacts a table: deltalake, which needs no JVM, or Spark.

With `engine="auto"`, deltalake compacts adopted tables, and Spark all others. deltalake rewrites a
table of 70 small files in 0.2 s, without a Spark session, and its commits are conditional: they
never overwrite a version of another writer. If the policy or the content of an adopted table
requires Spark, Spark compacts it, and the plan gives the reason. The content includes files that
deltalake failed to read (`compact/noted_files.py`).
"""

import re
from dataclasses import dataclass
from typing import Literal

from lakehouse.base.errors import Refused
from lakehouse.base.paths import is_absolute
from lakehouse.base.text import size_text
from lakehouse.declare.adopted import Adopted
from lakehouse.declare.compaction import BinPacking, Compaction
from lakehouse.declare.table import Table
from lakehouse.delta.partition_values import is_plain
from lakehouse.delta.snapshot import Snapshot, file_paths, partitions_of, row_total

# Features that deltalake 1.6.6 supports and that a rewrite of files does not affect. deltalake also
# supports deletion vectors, variants and V2 checkpoints, but its compactions of such tables were
# never compared with plans.
# Source: delta-io/delta-rs, crates/core/src/kernel/transaction/protocol.rs, INSTANCE
_WRITABLE = {
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "generatedColumns",
    "invariants",
    "timestampNtz",
}
_WORDS = {
    "clustering": "liquid clustering",
    "columnMapping": "column mapping",
    "deletionVectors": "deletion vectors",
    "identityColumns": "identity columns",
    "rowTracking": "row tracking",
    "v2Checkpoint": "V2 checkpoints",
    "variantType": "variants",
}
_TYPES = re.compile(
    r"(string|bigint|int|smallint|tinyint|float|double|boolean|binary|date|timestamp|timestamp_ntz"
    r"|decimal\(.*\)|array<.*>|map<.*>|struct<.*>)"
)
_INNER_VOID = re.compile(r"[<,:]void[>,]")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineChoice:
    """The engine that compacts a table.

    `why_not_deltalake` is empty if deltalake compacts the table, or was not considered.
    """

    engine: Literal["spark", "deltalake"]
    why_not_deltalake: str = ""

    def clause(self, disk_bytes: int) -> str:
        """The end of a plan's sentence, which names the engine. Empty if there was no choice.

        `disk_bytes` is the disk space that deltalake needs on this machine for a table on S3; 0 for
        a table on a disk.
        """
        if self.engine == "deltalake":
            disk = f", with about {size_text(disk_bytes)} on this machine's disk"
            return f"; by deltalake{disk if disk_bytes else ''}"
        return f"; by Spark, since {self.why_not_deltalake}" if self.why_not_deltalake else ""


SPARK = EngineChoice(engine="spark")


def may_need_no_spark(table: Table) -> bool:
    """Whether deltalake is preferred. The policy or the table may still require Spark."""
    declared = table.compaction.engine
    return declared == "deltalake" or (declared == "auto" and isinstance(table.write, Adopted))


def choose_engine(table: Table, snapshot: Snapshot) -> EngineChoice:
    """The engine that compacts a table at its present version.

    Raises:
        Refused: the declaration has `engine="deltalake"`, which cannot compact the table.
    """
    if not may_need_no_spark(table):
        return SPARK
    why_not = knob_that_requires_spark(table.compaction) or missing_in_deltalake(snapshot) or ""
    if table.compaction.engine == "deltalake" and why_not:
        raise Refused(
            f'plan of {table.key}: engine is "deltalake", which cannot compact the table, since '
            f'{why_not}. Use engine="auto" or "spark"'
        )
    return EngineChoice(engine="spark" if why_not else "deltalake", why_not_deltalake=why_not)


def missing_in_deltalake(snapshot: Snapshot) -> str | None:
    """Why deltalake cannot rewrite this table, as a clause: for example `it has deletion vectors`.

    `None` if deltalake can rewrite it.
    """
    is_mapped = snapshot.properties.get("delta.columnMapping.mode", "none") != "none"
    unsupported = set(snapshot.features) - _WRITABLE
    if not is_mapped:
        # The writer version of an old table implies this feature, even if no column is mapped.
        unsupported.discard("columnMapping")
    if unsupported:
        feature = min(unsupported)
        return f"it has {_WORDS.get(feature, f'the feature {feature}')}"
    for column in snapshot.columns:
        if not _TYPES.fullmatch(column.type) or _INNER_VOID.search(column.type):
            return f"column {column.name!r} has the type {column.type}"
    unsuitable = _unsuitable_file(snapshot)
    if unsuitable:
        return unsuitable
    types = {column.name: column.type for column in snapshot.columns}
    for partition in partitions_of(snapshot.files):
        for name, value in partition:
            if not is_plain(value, types[name]):
                return f"a partition has {name} = {value!r}"
    return None


def _unsuitable_file(snapshot: Snapshot) -> str:
    """Which file deltalake cannot rewrite or verify, as a clause; empty if there is none."""
    if any(map(is_absolute, file_paths(snapshot.files))):
        return "it has files of another table"
    if row_total(snapshot.files) is None:
        return "a file has no row count in the log"
    return min(snapshot.unreadable_files.values(), default="")


def knob_that_requires_spark(policy: Compaction) -> str:
    """The knob of the policy that requires Spark, as a clause; empty if no knob does."""
    if not isinstance(policy.data_layout, BinPacking):
        return f"its data_layout is {type(policy.data_layout).__name__}"
    if policy.verify == "content":
        return 'verify is "content", and Spark compares every row'
    return ""
