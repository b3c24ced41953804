"""Chooses the engine of a compaction, and the target size of its files.

With `engine="auto"`, deltalake compacts adopted tables, and Spark all others. deltalake rewrites a
table of 70 small files in 0.2 s, without a Spark session, and its commits are conditional: they
never overwrite a version of another writer. If the policy or the content of an adopted table
requires Spark, Spark compacts it, and the plan gives the reason. Spark also compacts it if
deltalake turns out to be unable to rewrite the planned files (`compact/run.py`).

The target grows with the table, so that a table of 2 GiB or more keeps about 128 files or more.
With this many files, a scan runs in parallel, and an UPDATE or DELETE rewrites a small part of the
table.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, cast

from lakehouse.base.errors import Refused
from lakehouse.base.frozen import frozen
from lakehouse.base.paths import is_absolute
from lakehouse.base.text import object_of
from lakehouse.declare.policies import MIB, BinPacking, Compaction
from lakehouse.declare.table import Table
from lakehouse.delta.commits import Commit, Commits, written_in
from lakehouse.delta.partition_values import is_plain
from lakehouse.delta.snapshot import DataFile, Snapshot, row_total, types_by_name

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
_TYPES = re.compile(
    r"(string|bigint|int|smallint|tinyint|float|double|boolean|binary|date|timestamp|timestamp_ntz"
    r"|decimal\(.*\)|array<.*>|map<.*>|struct<.*>)"
)
_INNER_VOID = re.compile(r"[<,:]void[>,]")


Engine = Literal["spark", "deltalake"]


def choose_engine(table: Table, snapshot: Snapshot) -> tuple[Engine, str]:
    """The engine that compacts a table at its present version, and why deltalake cannot.

    The reason is empty if deltalake compacts the table, or was not considered.

    Raises:
        Refused: the declaration has `engine="deltalake"`, which cannot compact the table.
    """
    policy = table.compaction
    if policy.engine == "spark" or (policy.engine == "auto" and not table.adopted):
        return "spark", ""
    if not isinstance(policy.data_layout, BinPacking):
        why_not = f"its data_layout is {type(policy.data_layout).__name__}"
    elif policy.verify == "content":
        why_not = 'verify is "content", and Spark compares every row'
    else:
        why_not = missing_in_deltalake(snapshot) or ""
    if policy.engine == "deltalake" and why_not:
        raise Refused(
            f'plan of {table.key}: engine is "deltalake", which cannot compact the table, since '
            f'{why_not}. Use engine="auto" or "spark"'
        )
    return "spark" if why_not else "deltalake", why_not


def missing_in_deltalake(snapshot: Snapshot) -> str | None:
    """Why deltalake cannot rewrite this table, as a clause; `None` if it can.

    An example is `it has the feature deletionVectors`.
    """
    is_mapped = snapshot.properties.get("delta.columnMapping.mode", "none") != "none"
    unsupported = set(snapshot.features) - _WRITABLE
    if not is_mapped:
        # The writer version of an old table implies this feature, even if no column is mapped.
        unsupported.discard("columnMapping")
    if unsupported:
        return f"it has the feature {min(unsupported)}"
    for column in snapshot.columns:
        if not _TYPES.fullmatch(column.type) or _INNER_VOID.search(column.type):
            return f"column {column.name!r} has the type {column.type}"
    if any(is_absolute(file.path) for file in snapshot.files):
        return "it has files of another table"
    if row_total(snapshot.files) is None:
        return "a file has no row count in the log"
    types = types_by_name(snapshot.columns)
    for partition in {file.partition for file in snapshot.files}:
        for name, value in partition:
            if not is_plain(value, types[name]):
                return f"a partition has {name} = {value!r}"
    return None


# Spark counts opening a file as 4 MiB of reading (`spark.sql.files.openCostInBytes`). With files of
# 16 MiB, opening them is a fifth of a scan.
SMALLEST_TARGET = 16 * MIB
# OPTIMIZE's own default (`DeltaSQLConf`, optimize.maxFileSize).
LARGEST_TARGET = 1024 * MIB
_LEAST_FILES_PER_TABLE = 128
# The ratio of landed bytes to Parquet bytes, assumed for a table without rows. The demo's events,
# JSON lines of a dozen fields, are 6 to 12 times smaller as Parquet with Snappy.
_LANDED_TO_PARQUET = 8
_QUOTED = re.compile(r"`([^`]*\.[^`]*)`")


@frozen
class WriteHistory:
    """Earlier compactions and writes, as far as the commits that were read ("the log") show them.

    - `last_target`: the target of the newest compaction with a recorded target, or `None`.
    - `unchanged`: whether no row has changed since that compaction.
    - `targets`: the target under which each file was compacted.
    - `written_ms`: the time of the last commit that changed the rows of each file.
    - `arranged`: the columns by which a commit ordered the rows of each file, and the commit's
      version.
    - `settled`: the columns by which all files that are older than the log are ordered; empty if
      the log does not show such columns.

    The keys of all mappings are paths. Columns have the spelling of `comparable_names`.
    """

    last_target: int | None
    unchanged: bool
    targets: Mapping[str, int]
    written_ms: Mapping[str, int]
    arranged: Mapping[str, tuple[tuple[str, ...], int]]
    settled: tuple[str, ...]


def write_history_of(history: Commits) -> WriteHistory:
    """The earlier compactions and writes of a table."""
    targets = dict[str, int]()
    written_ms = dict[str, int]()
    arranged = dict[str, tuple[tuple[str, ...], int]]()
    settled = tuple[str, ...]()
    last_target = None
    unchanged = False
    for commit in history.commits:
        if commit.changed_data:
            written_ms.update(dict.fromkeys(commit.added_paths, commit.committed_ms))
            continue
        figures = _plan_in(commit)
        columns = _arranged_by(commit)
        if columns:
            arranged.update(dict.fromkeys(commit.added_paths, (columns, commit.version)))
            if figures.get("files_left") == 0:
                settled = columns
            elif settled != columns:
                # A part of the older files may now be ordered by other columns than the rest.
                settled = ()
        target = figures.get("target_file_bytes")
        if isinstance(target, int) and target > 0:
            targets.update(dict.fromkeys(commit.added_paths, target))
            last_target = target
            unchanged = history.data_changed_after(commit.version) is False
    return WriteHistory(
        last_target=last_target,
        unchanged=unchanged,
        targets=targets,
        written_ms=written_ms,
        arranged=arranged,
        settled=settled,
    )


def choose_target(size_bytes: int) -> int:
    """The target for a table of this size: a power of two that gives at least 128 files.

    It is at least 16 MiB and at most 1 GiB.

    >>> [choose_target(gib * 1024**3) // 1024**2 for gib in (0, 3, 4, 16, 128, 4096)]
    [16, 16, 32, 128, 1024, 1024]
    """
    target = SMALLEST_TARGET
    while target < LARGEST_TARGET and size_bytes >= 2 * target * _LEAST_FILES_PER_TABLE:
        target *= 2
    return target


def target_in_force(size_bytes: int, policy: Compaction, write_history: WriteHistory) -> int:
    """The declared target, or the target for the table's size.

    Until rows change, the last compaction's target is kept. That compaction shrank the table by an
    unknown factor, so a new target could make the same files mergeable again. With `scan_cores`
    above 1, plans may have halved a declared target; then the smaller one is kept.
    """
    kept_target = write_history.last_target if write_history.unchanged else None
    if not policy.target_file_bytes:
        return kept_target or choose_target(size_bytes)
    if kept_target and policy.scan_cores > 1:
        return min(policy.target_file_bytes, kept_target)
    return policy.target_file_bytes


def _plan_in(commit: Commit) -> Mapping[str, Any]:
    """The plan that this program recorded in a compaction's commit; empty for other commits."""
    if not commit.user_metadata or "target_file_bytes" not in commit.user_metadata:
        return {}
    return object_of(written_in(commit).get("plan"))


def _arranged_by(commit: Commit) -> tuple[str, ...]:
    """The columns by which an OPTIMIZE ordered rows, in the spelling of `comparable_names`.

    Source: delta-io/delta v4.4.0, `DeltaOperations.scala`, Optimize.
    """
    for name in ("zOrderBy", "clusterBy"):
        try:
            columns = json.loads(commit.parameters.get(name, "[]"))
        except (ValueError, RecursionError):
            continue
        if isinstance(columns, list) and columns:
            return comparable_names(map(str, cast("list[object]", columns)))
    return ()


def comparable_names(columns: Iterable[str]) -> tuple[str, ...]:
    """Column names in a spelling that is the same for declarations and commits.

    Case is ignored, and the backticks that a commit puts around a name with a dot are removed.
    Source: apache/spark v4.2.0, `unresolved.scala`, UnresolvedAttribute.name.

    >>> comparable_names(["`order.id`", "Day"]) == comparable_names(["order.id", "day"])
    True
    """
    return tuple(_QUOTED.sub(r"\1", name).lower() for name in columns)


def count_outputs(
    landed_bytes: int, row_count: int, files: Sequence[DataFile], target_bytes: int
) -> int:
    """The number of files to write for a batch, so that each has about the target size.

    The bytes per row are estimated from that file of the table which has the most rows. The batch
    is never assumed to be larger than `landed_bytes`.
    """
    most_rows, size_bytes = max(
        ((file.row_count, file.size_bytes) for file in files if file.row_count), default=(0, 0)
    )
    if most_rows:
        expected_bytes = min(landed_bytes, row_count * size_bytes // most_rows)
    else:
        expected_bytes = landed_bytes // _LANDED_TO_PARQUET
    return max(1, round(expected_bytes / target_bytes))
