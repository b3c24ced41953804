"""Columns for undeclared fields, and session settings by the size of a write.

Staging puts all these fields of a record into one JSON object, which is parsed here.
"""

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING

from lakehouse.declare.landing import Landing
from lakehouse.declare.table import Table
from lakehouse.delta.log import TableFacts
from lakehouse.delta.snapshot import Snapshot
from lakehouse.land.plan.batches import Batch, files_of_spark
from lakehouse.land.plan.records import UNFIT
from lakehouse.land.plan.undeclared import RESCUED, AddedColumn
from lakehouse.spark import functions as F  # noqa: N812
from lakehouse.spark.frames import evaluated_once
from lakehouse.spark.statements import quote
from lakehouse.spark.temporary_confs import confs_for

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# The number of rows (`None` if unknown) and the number of bytes.
Size = tuple[float | None, int]
# A MERGE reads this many rows of the table in the time that it takes to read one whole row, because
# it reads few columns and only files that the batch may touch.
# Source: docs/internals/benchmarks/interpreted.json
_MERGED_INTO_ROWS = 3
# The most bytes of rows whose key range is computed, because the server stores these rows in its
# memory and on its disk.
_STORED_BYTES = 32 * 1024 * 1024
# The key range is computed only if the table is at least this many times as large as the rows.
_LEAST_RATIO = 4
# With fewer rows in the table, computing the range takes as long as it saves.
# Source: docs/internals/benchmarks/interpreted.json
_LEAST_ROWS = 10_000
# Java interprets a method of more bytes, and never compiles it. Above this limit, Spark generates
# several methods, since the expressions that judge a record are many.
# Source: OpenJDK, DontCompileHugeMethods; Spark 4.2.0, SQLConf.WHOLESTAGE_HUGE_METHOD_LIMIT
_HUGE_METHODS = {"spark.sql.codegen.hugeMethodLimit": "8000"}


def confs_to_load(table: Table, batch: Batch, facts: TableFacts | None) -> Mapping[str, str]:
    """Settings to parse and write a staged batch, or to merge its changes into the table."""
    confs = dict[str, str]()
    if files_of_spark(batch):
        # Imported here, because most batches have only small files.
        from lakehouse.land.spark.text import text_confs

        confs |= _HUGE_METHODS
        confs |= text_confs(table.landing) if table.landing.format != "parquet" else {}
    # No rows for the files, because their records are counted in `records`.
    read: list[Size] = [(0, sum(file.size_bytes for file in batch.files))]
    if facts is not None and table.landing.changes is not None:
        read.append(merged_into(facts.snapshot))
    return {**confs_to_read(read, records=batch.record_count or 0), **confs}


def are_few(size_bytes: int, snapshot: Snapshot) -> bool:
    """Whether rows of this size are so few that a MERGE should compute their key range first.

    False if the table is small, or its row count is unknown.
    """
    rows = snapshot.row_count
    return (
        size_bytes <= _STORED_BYTES
        and size_bytes * _LEAST_RATIO <= snapshot.size_bytes
        and rows is not None
        and rows >= _LEAST_ROWS
    )


def merged_into(snapshot: Snapshot) -> Size:
    """What a MERGE reads of a table: whole rows that take as long to read, and the table's size."""
    rows, size_bytes = whole_table(snapshot)
    return None if rows is None else rows / _MERGED_INTO_ROWS, size_bytes


def whole_table(snapshot: Snapshot) -> Size:
    """The rows and bytes of a whole table."""
    return snapshot.row_count, snapshot.size_bytes


def confs_to_read(read: Sequence[Size], *, records: int = 0) -> Mapping[str, str]:
    """Settings for statements that read these amounts, and this number of landed records.

    If the number of rows of one amount is unknown, so is their sum.
    """
    known_rows = [rows for rows, _ in read if rows is not None]
    total_rows = sum(known_rows) if len(known_rows) == len(read) else None
    size_bytes = sum(read_bytes for _, read_bytes in read)
    return confs_for(rows=total_rows, size_bytes=size_bytes, records=records)


UNDECLARED = "_lakehouse_undeclared"
UNKNOWN = "the schema does not name "
_ADDED = "_lakehouse_added"
_ADDED_CORRUPT = "_lakehouse_added_corrupt"


def with_undeclared(lines: "DataFrame", added: Sequence[AddedColumn]) -> "DataFrame":
    """The records with their undeclared fields parsed, for the other functions of this module."""
    columns = [f"{quote(column.name)} {column.type}" for column in _typed(added)]
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _ADDED_CORRUPT}
    ddl = ", ".join([*columns, f"{_ADDED_CORRUPT} STRING"])
    return lines.withColumn(_ADDED, evaluated_once(F.from_json(UNDECLARED, ddl, options)))


def undeclared_columns(landing: Landing, added: Sequence[AddedColumn]) -> "list[Column]":
    """The added columns, then two JSON columns of a record's undeclared fields.

    The first has the fields without an added column. It is null if there are none, or if they make
    a record bad. The second has all undeclared fields.
    """
    names = [column.name for column in _typed(added)]
    rest = _rest(added)
    rescued: Column = F.lit(None).cast("string")
    if landing.new_columns != "refuse":
        # If no field has a column, the text is kept as it is.
        is_whole = F.size(rest) == F.size(F.json_object_keys(UNDECLARED))
        rest_members = _members(F.col(UNDECLARED), lambda name: ~name.isin(*names))
        rescued = F.when(is_whole, F.col(UNDECLARED)).when(F.size(rest) > 0, rest_members)
    return [
        *[_added_value(name).alias(name) for name in names],
        rescued.alias(RESCUED),
        F.col(UNDECLARED),
    ]


def no_undeclared(added: Sequence[AddedColumn]) -> "list[Column]":
    """The columns that `undeclared_columns` returns, for records without undeclared fields."""
    types = {column.name: column.type for column in _typed(added)}
    types |= {RESCUED: "string", UNDECLARED: "string"}
    return [F.lit(None).cast(type_).alias(name) for name, type_ in types.items()]


def undeclared_names(added: Sequence[AddedColumn]) -> list[str]:
    """The names of the columns that `undeclared_columns` returns."""
    return [*(column.name for column in _typed(added)), RESCUED, UNDECLARED]


def why_undeclared_unfit(why: "Column", landing: Landing, added: Sequence[AddedColumn]) -> "Column":
    """Extends `why`, a chain of `when`, by the reasons why undeclared fields make a record bad."""
    rest = _rest(added)
    if landing.new_columns == "refuse":
        why = why.when(F.size(rest) > 0, F.concat(F.lit(UNKNOWN), F.array_join(rest, ", ")))
    for column in added:
        if column.type == "DOUBLE":  # Spark reads a number that is too large as infinite
            why = why.when(F.abs(_added_value(column.name)) == F.lit(inf), UNFIT)
    return why.when(_added_value(_ADDED_CORRUPT).isNotNull(), UNFIT)


def without_rescued(
    lines: "DataFrame", added: Sequence[AddedColumn], rescued_count: int, snapshot: Snapshot | None
) -> "DataFrame":
    """Drops the column of rescued fields if it is not needed.

    It is needed if a row has a value in it, or if the table or `added` has it.
    """
    columns = () if snapshot is None else snapshot.columns
    is_in_table = any(column.name == RESCUED for column in columns)
    is_added = any(column.name == RESCUED for column in added)
    return lines if rescued_count or is_in_table or is_added else lines.drop(RESCUED)


def _added_value(name: str) -> "Column":
    return F.col(f"{_ADDED}.{quote(name)}")


def _typed(added: Sequence[AddedColumn]) -> list[AddedColumn]:
    return [column for column in added if column.name != RESCUED]


def _rest(added: Sequence[AddedColumn]) -> "Column":
    """The names of fields that have no column; null if a record has no undeclared fields."""
    names = F.array(*[F.lit(column.name) for column in _typed(added)]).cast("array<string>")
    return F.array_except(F.json_object_keys(UNDECLARED), names)


def _members(text: "Column", is_wanted: "Callable[[Column], Column]") -> "Column":
    """The wanted members of a JSON object, without nulls, as a new JSON object.

    Values keep their types, unless a nested object has a duplicate key. All values are then texts.
    """
    typed = F.map_filter(
        F.from_json(text, "MAP<STRING, VARIANT>"),
        lambda name, value: is_wanted(name) & ~F.is_variant_null(value),
    )
    texts = F.map_filter(
        F.from_json(text, "MAP<STRING, STRING>"),
        lambda name, value: is_wanted(name) & value.isNotNull(),
    )
    return F.coalesce(F.to_json(typed), F.to_json(texts))
