"""DataFrames of tables, temporary views of DataFrames, and paths of files that Spark reads."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from operator import attrgetter
from typing import TYPE_CHECKING
from uuid import uuid4

from lakehouse.delta.columns import converted, is_nested
from lakehouse.delta.snapshot import Snapshot
from lakehouse.spark import functions as F  # noqa: N812
from lakehouse.spark import statements

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructField

# Spark's names of the types of whole numbers.
WHOLE_TYPES = ("byte", "short", "integer", "long")
# Spark reads a path with one of these characters as a pattern, unless a backslash escapes it.
_GLOB = re.compile(r"[\[\]{}*?\\]")


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
    rows = with_members_of(rows, {column.name: column.type for column in snapshot.columns})
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
    for field in rows.schema.fields:
        type_ = field.dataType.simpleString()
        wanted = types.get(field.name, type_)
        if type_ != wanted and is_nested(type_) and is_nested(wanted):
            columns[field.name] = F.expr(converted(statements.quote(field.name), type_, wanted))
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
    """A hash of the values of these columns. The setting `HASH_MAPS` must be on.

    Spark's hash skips nulls, also within arrays and structs. The hash therefore also covers whether
    each column is null, and the JSON text of each nested column. Spark cannot hash a variant
    itself, so a variant's hash covers only its JSON text and whether it is null.
    Source: Spark's hash.scala, HashExpression.
    """
    hashed = list["Column"]()
    for field in sorted(fields, key=attrgetter("name")):
        name = statements.quote(field.name)
        type_ = field.dataType.simpleString()
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
