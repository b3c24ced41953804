"""DataFrames of tables: read at a version, written in one commit, and as temporary views.

A repeated write is recognized by its transaction id, and a conflict is retried.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from lakehouse.base.clock import pause_about
from lakehouse.base.frozen import frozen
from lakehouse.delta.columns import converted, is_nested
from lakehouse.delta.protocol import OPTIMIZE_WRITE
from lakehouse.delta.snapshot import Snapshot, types_by_name
from lakehouse.spark import functions as F  # noqa: N812
from lakehouse.spark import statements
from lakehouse.spark.errors import is_conflict
from lakehouse.spark.temporary_confs import (
    SHUFFLED_BEFORE_WRITE,
    TRANSACTION_APP,
    TRANSACTION_VERSION,
    session_confs,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructField

# Spark's names of the types of whole numbers.
WHOLE_TYPES = ("byte", "short", "integer", "long")
# Spark reads a path with one of these characters as a pattern, unless a backslash escapes it.
_GLOB = re.compile(r"[\[\]{}*?\\]")
_BACKOFF_SECONDS = (0.2, 0.8, 2.0)

T = TypeVar("T")


def table_at(
    spark: "SparkSession",
    snapshot: Snapshot,
    *,
    version: int | None = None,
    within: Sequence[str] = (),
) -> "DataFrame":
    """The rows of a table that meet all conditions `within`, at one version of the table.

    The default is the snapshot's version. A DataFrame without a version would read the table as it
    is when the DataFrame is executed.
    """
    if version is None:
        version = snapshot.version
    table = spark.read.format("delta").option("versionAsOf", version).load(snapshot.uri)
    return table.where(" AND ".join(within)) if within else table


def with_columns_of(spark: "SparkSession", snapshot: Snapshot, rows: "DataFrame") -> "DataFrame":
    """The rows, with a null column for each column that only the table has.

    `UPDATE SET *` and `INSERT *` of a MERGE need all columns of the table.
    """
    names = {*rows.columns}
    missing = [column.name for column in snapshot.columns if column.name not in names]
    rows = with_members_of(rows, types_by_name(snapshot.columns))
    if not missing:
        return rows
    schema = table_at(spark, snapshot).schema
    return rows.withColumns({name: F.lit(None).cast(schema[name].dataType) for name in missing})


def with_members_of(rows: "DataFrame", types: Mapping[str, str]) -> "DataFrame":
    """The rows, whose structs have the members of these types, by column; members match by name.

    Members that only the rows have are dropped, other new members are null.
    """
    if not any(map(is_nested, types.values())):
        return rows
    columns = dict[str, "Column"]()
    for each in rows.schema.fields:
        type_ = each.dataType.simpleString()
        wanted = types.get(each.name, type_)
        if type_ != wanted and is_nested(type_) and is_nested(wanted):
            columns[each.name] = F.expr(converted(statements.quote(each.name), type_, wanted))
    return rows.withColumns(columns) if columns else rows


@contextmanager
def temporary_view(spark: "SparkSession", frame: "DataFrame") -> Iterator[str]:
    """The name of a view of the frame; the view is dropped at the end of the block."""
    view = f"lakehouse_{uuid4().hex}"
    frame.createOrReplaceTempView(view)
    try:
        yield view
    finally:
        with suppress(Exception):  # the session may be gone, and its views with it
            spark.catalog.dropTempView(view)


def content_hash(fields: "Sequence[StructField]") -> "Column":
    """A hash of the values of these columns.

    Spark's hash skips nulls, also within arrays and structs. The hash therefore also covers whether
    each column is null, and the JSON text of each nested column. Spark cannot hash a variant
    itself, so a variant's hash covers only its JSON text and whether it is null.
    Source: Spark's hash.scala, HashExpression.
    """
    hashed = list["Column"]()
    for each in sorted(fields, key=attrgetter("name")):
        name = statements.quote(each.name)
        type_ = each.dataType.simpleString()
        has_variant = "variant" in type_
        hashed.append(F.isnull(name))
        if not has_variant:
            hashed.append(F.col(name))
        if has_variant or type_.startswith(("array", "map", "struct")):
            hashed.append(F.to_json(F.struct(name), {"ignoreNullFields": "false"}))
    return F.xxhash64(*hashed)


def evaluated_once(column: "Column") -> "Column":
    """The same column, but Spark evaluates it only once per row, for example a parser's result.

    Spark copies a deterministic expression into each condition that refers to it, and evaluates
    each copy. It does not copy an expression that contains a row's id. The id is never negative, so
    the value does not change.
    """
    return F.when(F.monotonically_increasing_id() >= 0, column)


def struct_once(columns: "Sequence[Column]") -> "Column":
    """A struct of these columns with a member `_row`, which Spark evaluates only once per row.

    Unlike with `evaluated_once`, Spark also shares what several of its columns compute.
    """
    return F.struct(*columns, F.monotonically_increasing_id().alias("_row"))


def literal_path(path: str) -> str:
    """The path, escaped so that Spark's file readers do not read it as a pattern."""
    return _GLOB.sub(r"\\\g<0>", path)


def retry_conflicts(work: Callable[[], T], *, tries: int = len(_BACKOFF_SECONDS) + 1) -> T:
    """The result of `work`, which is called again after a conflict, up to `tries` times in all.

    Callers may ask for fewer `tries`, as compactions do. Each call must read its facts again. The
    last conflict is raised unchanged. The caller turns it into one of our errors with
    `spark.errors.translated`.
    """
    for seconds in _BACKOFF_SECONDS[: tries - 1]:
        try:
            return work()
        except Exception as error:
            if not is_conflict(error):
                raise
        pause_about(seconds)  # lets the other writer finish
    return work()


@frozen
class Transaction:
    """The transaction id of a commit. `version` increases with each commit of an `app_id`.

    Delta skips a write whose `version` is not greater than the newest one in the table's log.
    """

    app_id: str
    version: int


@frozen
class FrameWrite:
    """How a DataFrame is written to a table.

    `mode` is "append" or "overwrite". With `adds_columns`, columns that only the frame has are
    added to the table. With `replaces_schema`, an overwritten table gets the frame's columns and
    partitioning. If the commit creates the table, the table gets the `properties` that begin with
    `delta.`.
    """

    mode: str
    adds_columns: bool = False
    replaces_schema: bool = False
    transaction: Transaction | None = None
    partition_by: Sequence[str] = ()
    properties: Mapping[str, str] = {}
    user_metadata: str | None = None


def write_frame(frame: "DataFrame", uri: str, write: FrameWrite) -> None:
    """Writes the rows of a frame in one commit."""
    options: dict[str, str | int] = {
        name: value for name, value in write.properties.items() if name.startswith("delta.")
    }
    if write.transaction is not None:
        options["txnAppId"] = write.transaction.app_id
        options["txnVersion"] = write.transaction.version
    if write.user_metadata is not None:
        options["userMetadata"] = write.user_metadata
    if write.replaces_schema:
        options["overwriteSchema"] = "true"
    writer = frame.write.format("delta").mode(write.mode).options(**options)
    writer = writer.option("mergeSchema", write.adds_columns)
    if write.partition_by:
        writer = writer.partitionBy(*write.partition_by)
    writer.save(uri)


def run_merge(
    source: "DataFrame",
    snapshot: Snapshot,
    transaction: Transaction,
    condition: str,
    action: str,
) -> None:
    """Merges the rows of `source` into a table in one commit; see `statements.merge_into`.

    Rows are shuffled before they are written, unless a table property decides about the shuffle.
    Without a shuffle, a MERGE into a table with deletion vectors writes one file per source task,
    for example 16 files instead of 2, which takes longer (docs/internals/study.md).
    """
    spark = source.sparkSession
    confs = {TRANSACTION_APP: transaction.app_id, TRANSACTION_VERSION: str(transaction.version)}
    if OPTIMIZE_WRITE not in snapshot.properties:
        confs[SHUFFLED_BEFORE_WRITE] = "true"
    with temporary_view(spark, source) as view, session_confs(spark, confs):
        spark.sql(statements.merge_into(snapshot.uri, view, condition, action))
