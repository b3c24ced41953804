"""Verifies that a compaction wrote exactly the rows that it read.

The note, `_lakehouse/unverified/<layer>/<name>.json`, is written before the compaction can commit.
It is removed once the rows have been compared, nothing was committed, or an error reports that the
rows cannot be compared.

1. With `verify="rows"` (the default), the row counts and column statistics that the log records
   for the removed and added files are compared, by partition. If all are equal, this is done: each
   partition has as many rows as before, provided that the writers counted correctly. A value that
   changed within the bounds of its column is not detected.
2. Otherwise Spark counts the rows and sums a hash of their content by partition, before and after
   the commit (`content_sums`). After a compaction by deltalake, the row counts by partition in the
   log decide: a bound alone may differ only in its spelling.
3. If counts or sums differ, or the added files cannot be read, the version before the commit is
   restored, and the error reports the difference.

**Safety properties** (tests in `test_verify.py`, `test_undo.py`)
- If another writer has committed since, nothing is restored, because its rows would be lost. The
  RESTORE is a conditional commit of ours: it becomes the version after the compaction's, or none.
- If it is unknown whether the RESTORE was committed, the message says how to find out.
- Tables that read this table's changes get no row twice: our RESTORE is marked, and they skip it.
- The rows to compare are fixed by version, file and deletion vector, whatever others commit later.
- If a row count is unknown, or a count or statistic differs, Spark compares every row.
- The note (`_lakehouse/unverified`) is removed only if the rows were compared, if nothing was
  committed, or if an error reports that the rows can no longer be compared or were restored.
- If Spark's answer lacks a file, the file counts as empty only if the log shows that it has no rows
  left. Spark handles deletion vectors, renamed columns and dates in old calendars.
"""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote
from uuid import uuid4

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import Broken, LakehouseError, Refused
from lakehouse.base.frozen import frozen
from lakehouse.base.paths import bare_uri, is_absolute
from lakehouse.base.text import count_of
from lakehouse.compact.plan.history import Comparison
from lakehouse.delta.commits import Commit, engine_of, prediction_in
from lakehouse.delta.log.actions import adds_at, logged_adds
from lakehouse.delta.partition_values import TypedPartition, typed_partition
from lakehouse.delta.snapshot import DataFile, Snapshot, types_by_name
from lakehouse.lake.commits import (
    commit_after_newest,
    commit_info,
    file_actions,
)
from lakehouse.lake.lake import Lake
from lakehouse.spark import functions as F  # noqa: N812
from lakehouse.spark import statements
from lakehouse.spark.errors import first_line, is_conflict, is_lost, is_missing, is_of_spark
from lakehouse.spark.frames import content_hash, literal_path, table_at
from lakehouse.spark.temporary_confs import (
    ANSI,
    OPEN_BYTES,
    OPEN_COST,
    session_confs,
)
from lakehouse.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# A row count, and the sum of the hashes of these rows, modulo 2**64.
RowSum = tuple[int, int]
PartitionSums = Mapping[TypedPartition, RowSum]

# With these features, names and types of columns come from the log, not from the file.
READ_THROUGH_LOG = frozenset({"columnMapping", "typeWidening", "typeWidening-preview"})
READ_CONFS = {
    ANSI: "false",  # a partition value that cannot be cast is null, as it is for the compaction
    OPEN_COST: str(OPEN_BYTES),  # one task reads many small files
}


@frozen
class Side:
    """The files that the commit removed, or added, as they were at `version`."""

    version: int
    files: tuple[DataFile, ...]


def content_sums(
    spark: "SparkSession", snapshot: Snapshot, side: Side, newest: int
) -> PartitionSums:
    """Row counts and sums of hashes by partition. Partitions without rows are omitted.

    Version `newest` has the same columns as the side's, and Delta has it in memory.
    """
    answer: Mapping[str, RowSum] = {}
    if side.files:
        with session_confs(spark, READ_CONFS):
            answer = _by_file(snapshot, _rows_of(spark, snapshot, side, newest))
    types = types_by_name(snapshot.columns)
    sums: dict[TypedPartition, RowSum] = {}
    for file in side.files:
        row_count, hash_sum = _sum_of(snapshot, file, answer)
        if row_count:
            partition = typed_partition(file.partition, types)
            partition_count, partition_sum = sums.get(partition, (0, 0))
            # Spark's own sums wrap at 64 bits, too, since ANSI is off.
            total_sum = (partition_sum + hash_sum) % 2**64
            sums[partition] = (partition_count + row_count, total_sum)
    return sums


def _sum_of(snapshot: Snapshot, file: DataFile, answer: Mapping[str, RowSum]) -> RowSum:
    """The sum of one file, from Spark's answer.

    The answer lacks files without rows.

    Raises:
        Broken: the answer lacks the file, and the log does not show that it has no rows left.
    """
    path = _comparable_path(snapshot, file.path)
    if path in answer:
        return answer[path]
    if file.row_count is not None and file.row_count == file.deleted_row_count:
        return 0, 0
    raise Broken(
        f"compaction of {snapshot.table}: its rows cannot be compared, because Spark's answer, "
        f"which names {len(answer)} file(s), lacks {path}. Nothing is restored. "
        "Check the newest versions of the table"
    )


def _by_file(snapshot: Snapshot, frame: "DataFrame") -> Mapping[str, RowSum]:
    """The row count and the sum of hashes of each file with rows, by its path."""
    fields = [
        field for field in frame.schema.fields if field.name not in snapshot.partition_columns
    ]
    hashed = frame.select(
        F.col("_metadata.file_path").alias("path"), content_hash(fields).alias("hash")
    )
    row_count = F.count(F.lit(1)).alias("row_count")
    hash_sum = F.sum("hash").alias("hash_sum")
    rows = hashed.groupBy("path").agg(row_count, hash_sum).collect()
    return {
        _comparable_path(snapshot, row["path"]): (row["row_count"], row["hash_sum"]) for row in rows
    }


def _path(snapshot: Snapshot, path: str) -> str:
    """The full path of a file. The log and Spark both give a URI that is encoded once."""
    return unquote(path) if is_absolute(path) else f"{snapshot.uri}/{unquote(path)}"


def _comparable_path(snapshot: Snapshot, path: str) -> str:
    """The canonical form of a file's full path, for comparisons."""
    return bare_uri(_path(snapshot, path))


def _rows_of(spark: "SparkSession", snapshot: Snapshot, side: Side, newest: int) -> "DataFrame":
    """The rows of a side's files; through the log, of all files in their partitions.

    Most files are read as plain Parquet, with the columns of version `newest`. If Delta read the
    table with a condition on file names, it would open every file of a partition.
    """
    from pyspark.sql.types import StructType

    is_plain = READ_THROUGH_LOG.isdisjoint(snapshot.features)
    if is_plain and all(file.deletion_vector is None for file in side.files):
        fields = [
            field
            for field in table_at(spark, snapshot, version=newest).schema.fields
            if field.name not in snapshot.partition_columns
        ]
        paths = sorted(_path(snapshot, file.path) for file in side.files)
        return spark.read.schema(StructType(fields)).parquet(*map(literal_path, paths))
    table = table_at(spark, snapshot, version=side.version)
    if not snapshot.partition_columns:
        return table
    partitions = sorted({file.partition for file in side.files}, key=str)
    return table.where(statements.partition_predicate(snapshot.columns, partitions))


class Expected(NamedTuple):
    """A compaction to verify: the `mark` (a random id) in its commit, and the version it read."""

    mark: str
    version: int


def expect_verification(lake: Lake, table_key: str, mark: str, *, version: int) -> None:
    """Notes that a compaction of the table at `version` is about to commit with this `mark`."""
    lake.store.put(_name(table_key), json.dumps({"mark": mark, "version": version}).encode())


def expected(lake: Lake, table_key: str) -> Expected | None:
    """The compaction to verify, which may not have committed; `None` if there is no note.

    Raises:
        Broken: the note is damaged.
    """
    name = _name(table_key)
    try:
        document = json.loads(lake.store.read(name))
        return Expected(mark=str(document["mark"]), version=int(document["version"]))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, LookupError) as error:
        raise Broken(
            f"journal: {name} cannot be read ({type(error).__name__}: {error}); "
            "restore it from a copy of the lake, or delete it"
        ) from error


@contextlib.contextmanager
def settled(lake: Lake, table_key: str, mark: str) -> Iterator[None]:
    """Removes the note of this compaction after the block, or if the block raises `Broken`.

    After any other error the note is kept, and the next compaction, archive run, restore or TTL run
    verifies the rows (`verify_left`). If the note cannot be removed, that operation verifies rows
    that were already compared. A note of another compaction is kept.
    """
    try:
        yield
    except Broken:
        _forget(lake, table_key, mark)
        raise
    _forget(lake, table_key, mark)


def _forget(lake: Lake, table_key: str, mark: str) -> None:
    # An error here must neither hide the result of the comparison nor fail a correct compaction.
    with contextlib.suppress(LakehouseError):
        note = expected(lake, table_key)
        if note is not None and note.mark == mark:
            lake.store.delete([_name(table_key)])


def _name(table_key: str) -> str:
    return f"_lakehouse/unverified/{table_key}.json"


def verify(
    lake: Lake,
    open_spark: "Callable[[], SparkSession]",
    before: Snapshot,
    after: Snapshot,
    commit: Commit,
) -> Comparison:
    """Compares the rows before and after the commit of a compaction.

    `before` is the snapshot that the compaction planned for, and `after` the current one. A session
    is opened only if Spark has to compare rows.

    Raises:
        Broken: the rows differ, or the added files cannot be read. The version before the commit
            has been restored, unless another writer has committed since.
    """
    removed = _side(lake, before, after, commit.version - 1, commit.removed_paths)
    added = _side(lake, before, after, commit.version, commit.added_paths)
    prediction = prediction_in(commit)
    if prediction is not None and prediction.verify == "rows":
        row_count = equal_by_log(lake.store, before, removed, added)
        if row_count is not None:
            return Comparison(by="rows", row_count=row_count)
    by_counts = engine_of(commit) == "deltalake"
    if by_counts:
        old = _by_partition(before, removed, {})
        new = _by_partition(before, added, {})
    else:
        spark = open_spark()
        # If the removed files cannot be read, the compaction is not the cause: this raises.
        old = content_sums(spark, before, removed, commit.version)
        try:
            new = content_sums(spark, before, added, commit.version)
        except Exception as error:
            if not is_of_spark(error) or is_lost(error) or is_conflict(error):
                raise
            why = f"its files cannot be read ({first_line(error)})"
            raise Broken(undo(lake, before, commit, added, why)) from error
    if old is None or new is None:
        raise Broken(
            f"compaction of {before.table}: its rows cannot be compared without Spark, because "
            'the log lacks row counts. Nothing is restored. Use engine="spark"'
        )
    if old != new:
        raise Broken(undo(lake, before, commit, added, _difference(old, new)))
    return Comparison(by="counts" if by_counts else "content", row_count=_row_count(new))


def verify_left(lake: Lake, open_spark: "Callable[[], SparkSession]", table_key: str) -> None:
    """Verifies a compaction that an earlier run did not verify. The caller holds the lock.

    If the table is missing, the note is kept, because the table's disk may not be mounted.

    Raises:
        Broken: the rows differ, were restored, or can no longer be compared. The note is removed.
        Exception: the rows could not be compared this time. The note is kept.
    """
    note = expected(lake, table_key)
    facts = None if note is None else lake.facts(table_key)
    if note is None or facts is None:
        return
    with settled(lake, table_key, note.mark):
        if facts.snapshot.version < note.version:
            return  # the table was replaced
        history = lake.history_since(facts, note.version)
        commit = history.marked(note.mark)
        if commit is None:
            if history.between(note.version, facts.snapshot.version) is not None:
                return  # nothing was committed
            raise Broken(
                f"compaction of {table_key}: the run that began at version {note.version} ended "
                "before it compared the rows, and the log no longer shows whether it committed. "
                "Check the table's rows; later compactions are not affected"
            )
        if engine_of(commit) == "spark":
            open_spark()  # without a session, a later run compares the rows
        try:
            before = lake.existing_facts(table_key, version=commit.version - 1)
            verify(lake, open_spark, before.snapshot, facts.snapshot, commit)
        except Exception as error:
            is_final = isinstance(error, Refused | FileNotFoundError) or is_missing(error)
            # If only the storage or the log cannot be read now, a later run may compare the rows.
            if not is_final or lake.facts(table_key) is None:
                raise
            raise Broken(
                f"compaction of {table_key}: the run that committed version {commit.version} "
                "ended before it compared the rows, and they can no longer be compared "
                f"({first_line(error)}). Check the table's rows; later compactions are not affected"
            ) from error


class _OvertakenError(Exception):
    """Another writer has committed after the compaction."""


def undo(lake: Lake, before: Snapshot, commit: Commit, added: Side, why: str) -> str:
    """Restores the version before the commit, unless another writer has committed since.

    `why` says how the rows are wrong. Returns a message with the fault, the result of the RESTORE,
    and what to do. Because of its userMetadata, derived tables skip the RESTORE.
    """
    version = commit.version - 1
    promise = f"version {commit.version} must have the rows of version {version}"
    problem = f"compaction of {before.table}: {promise}, but {why}"
    restore = commit_info("RESTORE", commit.version, {"restored": version, "mark": uuid4().hex})
    restore["commitInfo"]["operationParameters"] = {"version": str(version)}
    if "inCommitTimestamp" in before.features:
        restore["commitInfo"]["inCommitTimestamp"] = max(now_ms(), commit.committed_ms + 1)
    removes = file_actions("remove", added.files, before)

    def refuse(_: Snapshot) -> None:
        raise _OvertakenError

    try:
        adds = adds_at(lake.store, before.table, version, {*commit.removed_paths})
        actions = [restore, *removes, *({"add": {**add, "dataChange": True}} for add in adds)]
        compacted = replace(before, version=commit.version)
        commit_after_newest(lake, compacted, actions, refuse)
    except _OvertakenError:
        return (
            f"{problem}. Nothing is restored, because another writer has committed after version "
            f"{commit.version}. Compare version {version} with the newest one"
        )
    except Exception as error:
        return (
            f"{problem}. Restoring version {version} failed ({type(error).__name__}: "
            f"{first_line(error)}). Unless a version after {commit.version} is this RESTORE, use "
            f"RESTORE to version {version}"
        )
    return f"{problem}. Version {version} is restored"


def _side(
    lake: Lake, before: Snapshot, after: Snapshot, version: int, paths: Sequence[str]
) -> Side:
    """The table's files at these paths, as of a version.

    The version is read from the log unless it is that of `before` or `after`.
    """
    all_paths = set(paths)
    snapshots = {each.version: each for each in (before, after)}
    snapshot = snapshots.get(version)
    if snapshot is None:
        snapshot = lake.existing_facts(before.table, version=version).snapshot
    files = tuple(file for file in snapshot.files if file.path in all_paths)
    missing = sorted(all_paths.difference(file.path for file in files))
    if missing:
        raise Broken(
            f"compaction of {before.table}: its rows cannot be compared, because version {version} "
            f"lacks {len(missing)} file(s) that its commit names, first {missing[0]}. Nothing is "
            "restored. Check the newest versions of the table"
        )
    return Side(version=version, files=files)


def _difference(
    removed: Mapping[TypedPartition, tuple[int, Any]],
    added: Mapping[TypedPartition, tuple[int, Any]],
) -> str:
    differing = [key for key in removed.keys() | added.keys() if removed.get(key) != added.get(key)]
    return (
        f"{_row_count(removed)} rows became {_row_count(added)} rows, differing in "
        f"{count_of(len(differing), 'partition')}"
    )


def _row_count(partitions: Mapping[TypedPartition, tuple[int, Any]]) -> int:
    return sum(row_count for row_count, _ in partitions.values())


# How the statistics of several files are combined. Source: PROTOCOL.md, "Per-file Statistics".
_FOLDS: Mapping[str, Any] = {"minValues": min, "maxValues": max, "nullCount": sum}

# The kind of a statistic, and the path of its column.
StatisticKey = tuple[str, tuple[str, ...]]
# The row count of a partition, and the combined statistics of its files.
PartitionFacts = tuple[int, Mapping[StatisticKey, Any]]


def equal_by_log(store: Store, snapshot: Snapshot, removed: Side, added: Side) -> int | None:
    """The number of rows after the compaction if the log shows no difference, otherwise `None`."""
    try:
        paths = {file.path for file in (*removed.files, *added.files)}
        if len(paths) < len(removed.files) + len(added.files):
            return None  # the same path has other statistics before and after the compaction
        versions = (removed.version, added.version)
        statistics = {
            add["path"]: add.get("stats")
            for add in logged_adds(store, snapshot.table, versions, ("path", "stats"))
            if add["path"] in paths
        }
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
    return _row_count(added_facts)


def _by_partition(
    snapshot: Snapshot, side: Side, statistics: Mapping[str, str | None]
) -> Mapping[TypedPartition, PartitionFacts] | None:
    """The facts of each partition with rows; `None` if a file's row count is unknown."""
    types = types_by_name(snapshot.columns)
    files = dict[TypedPartition, list[tuple[DataFile, Mapping[str, Any]]]]()
    for file in side.files:
        text = statistics.get(file.path) or "{}"
        parsed = json.loads(text, parse_float=Decimal)
        files.setdefault(typed_partition(file.partition, types), []).append((file, parsed))
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
