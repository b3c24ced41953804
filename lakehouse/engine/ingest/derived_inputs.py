"""Decides and reads the increments of a derived table's inputs.

An increment is what a run reads of an input: all rows, the latest changes, or nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING
from urllib.parse import unquote

from lakehouse.core.declaration.table import Table
from lakehouse.core.declaration.write_modes import Append, Merge
from lakehouse.core.delta.commits import ARCHIVE_APP_ID, CONSUME, Commit
from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.core.errors import Broken
from lakehouse.core.evolution.plan import NEW_KEY
from lakehouse.core.ingest import derived_increments
from lakehouse.core.ingest.derived_increments import Increment, ReadAll, ReadChanges, Reader
from lakehouse.core.text import count_of
from lakehouse.engine.delta_log import TableFacts, history_since, newest_first
from lakehouse.engine.ingest.work_size import Size, are_few, confs_to_read, merged_into, whole_table
from lakehouse.engine.lake import Lake
from lakehouse.engine.spark.errors import causes_of
from lakehouse.engine.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Error conditions of changes that were not recorded or have another schema, and of missing files.
# Source: Delta Lake 4.4.0, delta-error-classes.json; Spark 4.2.0, error-conditions.json
_NOT_RECORDED = (
    "DELTA_MISSING_CHANGE_DATA",
    "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA",
    "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_SCHEMA_CHANGE",
)
_FILE_GONE = "FAILED_READ_FILE.FILE_NOT_EXIST"
_CHANGE_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")


def next_increment(
    lake: Lake, table: Table, first: TableFacts, target: TableFacts | None
) -> Increment:
    """The increment of the first input that an `Append` or `Merge` into `target` reads next.

    Raises:
        Broken: the input was replaced by an older copy of itself.
        Refused: the table's rows were written in another way.
    """
    derived_increments.check_written_alike(table, commits_of(lake, target))
    version = first.snapshot.version
    transactions = {} if target is None else target.snapshot.transactions
    consumed = derived_increments.consumed_of(first.snapshot, transactions)
    history = first.history
    if consumed is not None:
        history = history_since(lake.store, first.history, consumed.version - 1)
        refuse_older_copy(lake, table, first, target)
    # An `Append` that has not read changes since its first write may hold all rows of the input.
    has_followed = derived_increments.has_followed(first.snapshot, commits_of(lake, target))
    prefix = f"{CONSUME}{first.snapshot.table}/"
    reader = Reader(
        read_another=any(app_id.startswith(prefix) for app_id in transactions),
        may_hold_all=isinstance(table.write, Merge) or not has_followed,
        is_append=isinstance(table.write, Append),
    )
    consumed_version = None if consumed is None else consumed.version
    increment = derived_increments.plan_increment(consumed_version, version, history, reader)
    return with_archive(lake, first, increment) if isinstance(increment, ReadAll) else increment


def with_archive(lake: Lake, first: TableFacts, increment: ReadAll) -> ReadAll:
    """The increment, together with the input's archived rows at the same version."""
    archived = archived_rows_and_bytes(lake, first)
    if archived is None:
        return increment
    rows, _ = archived
    more = f"; with {'the rows' if rows is None else count_of(rows, 'row')} of its archive"
    explanation = replace(increment.explanation, more=more)
    return replace(increment, archived=(archived,), explanation=explanation)


def why_archived(lake: Lake, facts: TableFacts) -> str:
    """Why a table cannot be rebuilt; an empty string if nothing of it is archived."""
    key = facts.snapshot.table
    if not archived_rows_and_bytes(lake, facts):
        return ""
    return (
        f"partitions of {key} are in its archive, and would not be part of the result. Use"
        f" `lakehouse restore {key}` first"
    )


def archived_rows_and_bytes(lake: Lake, facts: TableFacts) -> tuple[int | None, int] | None:
    """The rows (`None`: unknown) and bytes of a table's archive; `None` if there are none."""
    if ARCHIVE_APP_ID not in facts.snapshot.transactions:
        return None
    # Imported here, because few tables have an archive.
    from lakehouse.retain.run.read import archived_size

    rows, size_bytes = archived_size(lake, facts)
    return (rows, size_bytes) if size_bytes else None


def refuse_older_copy(
    lake: Lake, table: Table, first: TableFacts, target: TableFacts | None
) -> None:
    """Raises `Broken` if the last consumed version of the first input no longer exists."""
    key = first.snapshot.table
    version = first.snapshot.version
    transactions = {} if target is None else target.snapshot.transactions
    consumed = derived_increments.consumed_of(first.snapshot, transactions)
    if consumed is None:
        return
    history = history_since(lake.store, first.history, consumed.version - 1)
    read_ms = derived_increments.read_ms_of(commits_of(lake, target), *consumed)
    if consumed.version > version or history.has_replaced(consumed.version, read_ms):
        # A rebuild can record only a version that is newer than the consumed version.
        advice = f"use `lakehouse rebuild {table.key}`" if consumed.version < version else NEW_KEY
        raise Broken(
            f"write of {table.key}: it has consumed version {consumed.version} of {key}, which no"
            f" longer exists. {key} is at version {version}: an older copy was put in its place."
            " Either put the newest log back, or, to continue with the rows of the older copy,"
            f" {advice}"
        )


def increments_to_overwrite(
    lake: Lake, inputs: Mapping[str, TableFacts], target: TableFacts | None
) -> tuple[list[Increment], list[str]]:
    """The increment of each input, and the keys of other inputs that the last overwrite read."""
    consumed = derived_increments.consumed_by_overwrite(commits_of(lake, target))
    increments = [_increment_of(lake, consumed, facts) for facts in inputs.values()]
    return increments, sorted({key for key, _ in consumed} - inputs.keys())


def confs_to_derive(
    store: Store,
    table: Table,
    inputs: Mapping[str, TableFacts],
    target: TableFacts | None,
    increment: ReadAll | ReadChanges | None,
) -> Mapping[str, str]:
    """Session settings for a derived table's transformation and write.

    The first input's `increment` is read (`None`: the whole input); other inputs are read whole.
    """
    first, *others = inputs.values()
    sizes = [whole_table(facts.snapshot) for facts in others]
    if isinstance(increment, ReadChanges):
        sizes.append(_size_of_changes(store, first, increment))
    else:
        sizes.append(whole_table(first.snapshot))
    if isinstance(increment, ReadAll):
        sizes += increment.archived
    if target is not None and isinstance(table.write, Merge):
        sizes.append(merged_into(target.snapshot))
    return confs_to_read(sizes)


def merges_few(
    store: Store, first: TableFacts, target: TableFacts, increment: ReadAll | ReadChanges
) -> bool:
    """Whether a MERGE has so few rows that computing the range of their keys first pays off."""
    if not isinstance(increment, ReadChanges):
        return False
    _, size_bytes = _size_of_changes(store, first, increment)
    return are_few(size_bytes, target.snapshot)


def _size_of_changes(store: Store, facts: TableFacts, increment: ReadChanges) -> Size:
    """Rows and bytes of the files that the increment's commits added.

    The row count is estimated from the table's average row size.
    """
    commits = history_since(store, facts.history, increment.first - 1).commits
    added_bytes = sum(each.added_bytes for each in commits if each.changed_data)
    row_count, size_bytes = whole_table(facts.snapshot)
    if row_count is None or added_bytes >= size_bytes:
        return row_count, max(added_bytes, size_bytes)
    return row_count * added_bytes / size_bytes, added_bytes


def commits_of(lake: Lake, target: TableFacts | None) -> Iterable[Commit]:
    """The commits of the derived table, newest first, as far back as its log goes."""
    return () if target is None else newest_first(lake.store, target.history)


def _increment_of(
    lake: Lake, consumed: Mapping[tuple[str, str], tuple[int, int | None]], facts: TableFacts
) -> Increment:
    """The increment of one input since the last overwrite."""
    snapshot = facts.snapshot
    history = facts.history
    version, read_ms = consumed.get((snapshot.table, snapshot.table_id), (None, None))
    if version is not None:
        history = history_since(lake.store, facts.history, version - 1)
        if history.has_replaced(version, read_ms):
            version = None
    read_another = any(key == snapshot.table for key, _ in consumed)
    reader = Reader(read_another=read_another, may_hold_all=True)
    return derived_increments.plan_increment(version, snapshot.version, history, reader)


def changed_rows(spark: "SparkSession", uri: str, increment: ReadChanges) -> "DataFrame":
    """The rows inserted or updated in the versions of an increment."""

    def feed(first: int, upto: int) -> "DataFrame":
        reader = (
            spark.read.format("delta")
            .option("readChangeFeed", "true")
            .option("startingVersion", first)
            .option("endingVersion", upto)
        )
        changes = reader.load(uri).where("_change_type IN ('insert', 'update_postimage')")
        return changes.drop(*_CHANGE_COLUMNS)

    feeds = [feed(first, upto) for first, upto in increment.ranges]
    return reduce(lambda rows, more_rows: rows.unionByName(more_rows), feeds)


def changes_are_gone(error: Exception, snapshot: Snapshot) -> bool:
    """Whether an error means that a table's changes were not recorded, or their files are gone.

    False if a file of the newest version is gone, because the table itself is damaged then.
    """
    for cause in causes_of(error):
        if cause.condition in _NOT_RECORDED:
            return True
        # The message may have the URL-encoded path.
        messages = (cause.message, unquote(cause.message))
        is_file_of_table = any(f"{snapshot.uri}/" in message for message in messages)
        if cause.condition == _FILE_GONE and is_file_of_table:
            live_files = (f"{snapshot.uri}/{unquote(file.path)}" for file in snapshot.files)
            return not any(name in message for name in live_files for message in messages)
    return False
