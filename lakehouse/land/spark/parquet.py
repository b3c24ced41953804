"""Judges rows of Parquet and Avro: large Parquet files that Spark reads itself, and staged rows.

1. This process reads a large file's footer (one request) and decides whether Spark reads each of
   its columns as it is. If not, the file is staged like a small one, or it is set aside if it is
   too large for that.
2. Executors read the file in splits, or the staged rows of small files. One expression per column
   gives its value, and one per row the reason why the row cannot be loaded. If a column has
   another type than declared, its values are read as their texts in CSV would be.
3. `parse_lines` and the steps after it treat these rows like parsed staged records.

**Safety properties** (tests in `test_parquet.py`)
- The number of rows in the footers is compared with the rows and rejected rows that Spark counts,
  before anything is written.
- A file whose size or time changes fails each statement that reads it (`frozen_files`). The files'
  checksums are compared once more after the commit.
- A file that Spark cannot read to its end is set aside, and the batch goes on without it.
- A date or time before 1582-10-16 is loaded only if its file shows that it uses the Gregorian
  calendar, and none outside of the years 1 to 9999.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.base.errors import Broken, Refused
from lakehouse.base.frozen import frozen
from lakehouse.declare.landing import Landing
from lakehouse.lake.lake import TableSession
from lakehouse.land.decode import TableShape, parquet_is_gregorian, sql_type, staged_type
from lakehouse.land.parse_lines import (
    CORRUPT,
    DIGEST,
    ORIGIN,
    PARSED,
    RAW,
    REASON,
    ROW_SCHEMA,
    UNDECLARED,
    cast_text,
    csv_types,
    is_unfit,
    no_reason,
    parsed_json,
)
from lakehouse.land.plan.batches import Batch, LandedFile
from lakehouse.land.plan.choose_files import FileRead, read_by_this_process
from lakehouse.land.plan.records import NOT_UTF_8, UNFIT, Unreadable, present_names
from lakehouse.land.spark.frozen_files import (
    file_columns,
    file_of_spark,
    frozen_groups,
    origin_of,
    why_not_frozen,
    with_frozen_files,
)
from lakehouse.land.staging import part_names, staged_shape, value_columns
from lakehouse.spark import functions as F  # noqa: N812
from lakehouse.spark.frames import WHOLE_TYPES, literal_path
from lakehouse.spark.statements import quote
from lakehouse.store import Store

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField

# Most footers are smaller, so that one request reads a footer.
_FOOTER_BYTES = 64 * 1024
# A length above this is damaged.
_LARGEST_FOOTER_BYTES = 64 * 1024 * 1024
_MAGIC = b"PAR1"
_ROW_INDEX = "_lakehouse_row_index"
_NO_CODEC = "BROTLI"
_OTHER_COLUMN = "a column is nested, or of a type or a name that Spark does not read as it is"
# Arrow's types that a file stores in another form than Spark reads.
_STORED_OTHERWISE = ("uint64", "halffloat", "date64[ms]", "null")
# Spark's names of declared types to which a value is cast as it is, by the type in the file.
_CAST_TO: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(WHOLE_TYPES, (*WHOLE_TYPES, "float", "double", "decimal")),
    "float": ("double",),
    "decimal": ("decimal",),
    "date": ("timestamp", "timestamp_ntz"),
    "timestamp": ("timestamp_ntz",),
    "timestamp_ntz": ("timestamp",),
}
_NESTED = ("struct", "array", "map")
_TEXT_OPTIONS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_READ_OPTIONS = {
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    "parquet.page.verify-checksum.enabled": "true",
}
_FIRST_DAY = "0001-01-01"
# The first day that is the same in the Julian and the Gregorian calendar, in every time zone.
_FIRST_SAME_DAY = "1582-10-16"
_NOT_GREGORIAN = (
    " (the file does not show that it uses the Gregorian calendar, and Spark 2 and Hive write "
    "Julian dates. Write such values as text, and land these rows in a new file)"
)


@frozen
class _Leaf:
    """A column of a file, as Spark reads it. `is_nanos`: its times are read as whole numbers."""

    name: str
    type: str
    is_nanos: bool = False


def read_footer(store: Store, path: str) -> pq.FileMetaData:
    """The footer of a Parquet file.

    Raises:
        Unreadable: the file has none that can be read.
    """
    damaged = Unreadable("its footer cannot be read. Land an undamaged copy")
    end = store.read_part(path, -_FOOTER_BYTES, _FOOTER_BYTES)
    size = int.from_bytes(end[-8:-4], "little") + 8
    if len(end) < 12 or end[-4:] != _MAGIC or size > _LARGEST_FOOTER_BYTES:
        raise damaged
    if size > len(end):
        end = store.read_part(path, -size, size)
    try:
        return pq.read_metadata(pa.BufferReader(end[-size:]))
    except (pa.ArrowException, OSError) as error:
        raise damaged from error


def read_by_spark(store: Store, path: str, file: LandedFile, landing: Landing) -> FileRead | None:
    """The file as Spark will read it; `None` if this process has to read it.

    A file that this process must not read because of its size, either, has a problem.
    """
    present = file_of_spark(store, path, file)
    try:
        footer = read_footer(store, path)
        leaves = _leaves(footer, landing)
    except Unreadable as error:
        return read_by_this_process(file, landing, str(error))
    blocks = ((footer.num_rows, footer.num_rows),)
    return FileRead(
        file=replace(present, blocks=blocks),
        record_count=footer.num_rows,
        columns=[leaf.name for place, leaf in enumerate(leaves) if not _is_empty(footer, place)],
    )


def parquet_lines(session: TableSession, batch: Batch) -> "list[DataFrame]":
    """Frames like `parse_lines.staged_lines`, already parsed, one for all files of one shape.

    Raises:
        Broken: a file is gone, or is not the file of the batch any more.
    """

    def shape_of(file: LandedFile) -> tuple[Sequence[_Leaf], bool]:
        footer = read_footer(session.lake.store, f"{batch.prefix}{file.name}")
        return _leaves(footer, session.table.landing), parquet_is_gregorian(footer)

    return [
        _lines(session, batch, files, leaves, is_gregorian=is_gregorian)
        for (leaves, is_gregorian), files in frozen_groups(session, batch, shape_of).items()
    ]


def _leaves(footer: pq.FileMetaData, landing: Landing) -> tuple[_Leaf, ...]:
    """The columns of a file, as Spark reads them.

    Raises:
        Unreadable: Spark must not read the file with this declaration.
    """
    try:
        kinds = footer.schema.to_arrow_schema()
    except (pa.ArrowException, NotImplementedError) as error:
        raise Unreadable(_OTHER_COLUMN) from error
    names = {name.lower() for name in kinds.names}
    is_nested = len(kinds) != len(footer.schema)
    if len(names) < len(kinds.names) or "_metadata" in names or is_nested:
        raise Unreadable(_OTHER_COLUMN)
    for group in range(footer.num_row_groups):
        for place in range(footer.num_columns):
            if footer.row_group(group).column(place).compression == _NO_CODEC:
                raise Unreadable(f"Spark has no codec for its compression, {_NO_CODEC}")
    leaves = [_leaf(footer.schema.column(place), kind.type) for place, kind in enumerate(kinds)]
    present_names(kinds.names, landing)
    return tuple(leaves)


def _leaf(column: Any, kind: pa.DataType) -> _Leaf:
    """A top-level column as Spark reads it.

    Raises:
        Unreadable: the values of the column are not read as they are.
    """
    name = column.name
    if column.path != name or not _is_clear(name):
        raise Unreadable(_OTHER_COLUMN)
    if pa.types.is_timestamp(kind):
        is_instant = column.physical_type == "INT96"
        type_ = "TIMESTAMP" if is_instant or kind.tz else "TIMESTAMP_NTZ"
        return _Leaf(name=name, type=type_, is_nanos=kind.unit == "ns" and not is_instant)
    staged = staged_type(kind)
    is_other_as_text = staged == pa.string() and not pa.types.is_string(kind)
    if staged is None or is_other_as_text or str(kind) in _STORED_OTHERWISE:
        raise Unreadable(_OTHER_COLUMN)
    return _Leaf(name=name, type=sql_type(staged))


def _is_clear(name: str) -> bool:
    """Whether a statement can name a column of a file, and cannot mean another one."""
    with suppress(Refused):
        return bool(quote(name)) and not name.lower().startswith("_lakehouse")
    return False


def _is_empty(footer: pq.FileMetaData, place: int) -> bool:
    """Whether statistics show that a column has no value."""
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        statistics = group.column(place).statistics
        nulls = None if statistics is None else statistics.null_count
        if nulls != group.num_rows:
            return False
    return True


def _lines(
    session: TableSession,
    batch: Batch,
    files: Sequence[LandedFile],
    leaves: Sequence[_Leaf],
    *,
    is_gregorian: bool,
) -> "DataFrame":
    root = session.lake.settings.spark_root
    ddl = ", ".join(
        f"{quote(leaf.name)} {'BIGINT' if leaf.is_nanos else leaf.type}" for leaf in leaves
    )
    paths = [literal_path(f"{root}/{batch.prefix}{file.name}") for file in files]
    landed = session.spark.read.schema(ddl).options(**_READ_OPTIONS).parquet(*paths)
    row_index = F.col("_metadata.row_index").alias(_ROW_INDEX)
    landed = landed.select("*", *file_columns(), row_index)
    landed = with_frozen_files(session, batch, files, landed)
    columns = {leaf.name: _column(leaf) for leaf in leaves}
    rows = _Rows(landed, columns, origin_of(F.col(_ROW_INDEX)), is_gregorian)
    return _judged(rows, session.table.landing, why_not_frozen())


def staged_footers(session: TableSession, batch: Batch) -> Iterator[tuple[str, pq.FileMetaData]]:
    """The names and footers of a batch's staged parts.

    Raises:
        Broken: a part is damaged.
    """
    for name in part_names(session.key, batch):
        try:
            yield name, read_footer(session.lake.store, name)
        except Unreadable as error:
            raise Broken(
                f"load of {session.key}: {name} is damaged. Delete it, and load again"
            ) from error


def staged_rows(session: TableSession, batch: Batch) -> "list[DataFrame]":
    """Frames like `parquet_lines`, of the staged rows of small files."""
    landing = session.table.landing
    root = session.lake.settings.spark_root
    paths = defaultdict[TableShape, list[str]](list)
    for name, footer in staged_footers(session, batch):
        shape = staged_shape(footer.schema.to_arrow_schema())
        paths[shape].append(literal_path(f"{root}/{name}"))
    frames = list["DataFrame"]()
    for shape, parts in paths.items():
        names = value_columns(shape)
        types = [
            f"{name} {sql_type(type_)}" for name, type_ in zip(names, shape.types, strict=True)
        ]
        schema = ", ".join([ROW_SCHEMA, *types])
        staged = session.spark.read.schema(schema).options(**_READ_OPTIONS).parquet(*parts)
        columns = dict(zip(shape.names, map(F.col, names), strict=True))
        rows = _Rows(staged, columns, [*ORIGIN, DIGEST], shape.is_gregorian)
        frames.append(_judged(rows, landing, no_reason()))
    return frames


class _Rows(NamedTuple):
    """Rows to judge: the columns of their file by name, and their origin."""

    frame: "DataFrame"
    columns: "Mapping[str, Column]"
    origin: "Sequence[Column | str]"
    is_gregorian: bool


def _judged(rows: _Rows, landing: Landing, reason: "Column") -> "DataFrame":
    """Rows with their values as `PARSED`. `reason` is a chain of `when`, which is extended."""
    sent = rows.frame.select(*[value.alias(name) for name, value in rows.columns.items()]).schema
    first_day = _FIRST_DAY if rows.is_gregorian else _FIRST_SAME_DAY
    for field in sent:
        is_flawed = _is_flawed(rows.columns[field.name], field.dataType, first_day)
        finding = f"{field.name} {_flaw(field.dataType.typeName(), first_day)}"
        reason = reason.when(is_flawed, finding)
    names = present_names([*rows.columns], landing)
    columns = dict(zip(names, rows.columns.values(), strict=True))
    types = dict(zip(names, [field.dataType for field in sent], strict=True))
    ddl = landing.field_types
    declared = csv_types(rows.frame, landing)
    values = list["Column"]()
    for field in declared:
        value = F.lit(None).cast(field.dataType.simpleString())
        if field.name in columns:
            value, unfit = _value(columns[field.name], types[field.name], field, ddl[field.name])
            reason = reason.when(unfit, UNFIT)
        values.append(value.alias(field.name))
    others = _others(columns, types, declared)
    undeclared = list["Column"]()
    if others:
        text = F.nullif(F.to_json(F.struct(*others), _TEXT_OPTIONS), F.lit("{}"))
        undeclared.append(text.alias(UNDECLARED))
    raw = [_shown(rows.columns[field.name], field.dataType).alias(field.name) for field in sent]
    return rows.frame.select(
        F.struct(*values).alias(PARSED),
        *rows.origin,
        F.to_json(F.struct(*raw), {**_TEXT_OPTIONS, "ignoreNullFields": "false"}).alias(RAW),
        *undeclared,
        reason.alias(REASON),
    )


def _column(leaf: _Leaf) -> "Column":
    column = F.col(quote(leaf.name))
    if leaf.is_nanos:  # cut to microseconds, also before 1970
        whole = column - F.pmod(column, F.lit(1_000))
        # Not `/`, which rounds whole numbers of this size to those of a DOUBLE.
        column = F.timestamp_micros(F.call_function("div", whole, F.lit(1_000)))
        return column if leaf.type == "TIMESTAMP" else column.cast("timestamp_ntz")
    return column


def _is_flawed(value: "Column", type_: Any, first_day: str) -> "Column":
    """Whether no column could hold a value as it was meant.

    This is a text that is not UTF-8, a date before `first_day` or after 9999, or a map with a key
    twice, at any depth.
    """
    match type_.typeName():
        case "string":
            return ~F.is_valid_utf8(value)
        case "date" | "timestamp" | "timestamp_ntz" as kind:
            last = F.lit("9999-12-31T23:59:59.999999").cast(kind)
            return ~value.between(F.lit(first_day).cast(kind), last)
        case "array":
            return F.exists(value, lambda each: _is_flawed(each, type_.elementType, first_day))
        case "map":
            keys = F.map_keys(value)
            is_twice = F.size(F.array_distinct(keys)) < F.size(keys)
            is_flawed_key = F.exists(keys, lambda key: _is_flawed(key, type_.keyType, first_day))
            items = F.map_values(value)
            return (
                is_twice
                | is_flawed_key
                | F.exists(items, lambda item: _is_flawed(item, type_.valueType, first_day))
            )
        case "struct":
            members = [
                _is_flawed(value.getField(field.name), field.dataType, first_day) for field in type_
            ]
            return reduce(or_, members)
        case _:
            return F.lit(False)


def _flaw(kind: str, first_day: str) -> str:
    """The reason for a value of this kind that is flawed."""
    if kind == "string":
        return f"is {NOT_UTF_8}"
    dates = f"is not from {first_day} to 9999-12-31"
    if first_day != _FIRST_DAY:
        dates += _NOT_GREGORIAN
    return (
        f"has a part that {dates}, or is {NOT_UTF_8}, or a key twice" if kind in _NESTED else dates
    )


def _value(
    column: "Column", given: Any, field: "StructField", type_: str
) -> "tuple[Column, Column]":
    """The value of a declared field of a type, and whether the file's value does not fit it."""
    kind = field.dataType.typeName()
    given_kind = given.typeName()
    if given.simpleString() == field.dataType.simpleString():
        return column, F.lit(False)
    if kind == "string":
        return _text(column, given_kind), F.lit(False)
    if kind in _CAST_TO.get(given_kind, ()):
        value = column.try_cast(field.dataType.simpleString())
        return value, column.isNotNull() & value.isNull()
    if kind in _NESTED and given_kind in _NESTED:
        text = F.to_json(F.struct(column.alias("value")), _TEXT_OPTIONS)
        parsed = parsed_json(text, f"value {type_}, {CORRUPT} STRING")
        return parsed["value"], parsed[CORRUPT].isNotNull()
    if not {kind, given_kind}.isdisjoint((*_NESTED, "binary")):
        return F.lit(None).cast(field.dataType.simpleString()), column.isNotNull()
    text = _text(column, given_kind)
    value = cast_text(text, field)
    return value, is_unfit(text, value, field)


def _text(column: "Column", kind: str) -> "Column":
    """The text of a value, as JSON has it."""
    if kind == "binary":
        return F.base64(column)
    if kind in _NESTED:
        return F.to_json(column, _TEXT_OPTIONS)
    if kind == "timestamp":
        return F.date_format(column, _TEXT_OPTIONS["timestampFormat"])
    if kind == "timestamp_ntz":
        return F.date_format(column, _TEXT_OPTIONS["timestampNTZFormat"])
    return column.cast("string")


def _others(
    columns: "Mapping[str, Column]", types: Mapping[str, Any], declared: Any, path: str = ""
) -> "list[Column]":
    """The undeclared columns, and the undeclared members of declared structs by their path."""
    others = list["Column"]()
    declared_types = {field.name: field.dataType for field in declared}
    for name, type_ in types.items():
        if name not in declared_types:
            others.append(_shown(columns[name], type_).alias(f"{path}{name}"))
        elif type_.typeName() == declared_types[name].typeName() == "struct":
            members = {field.name: columns[name].getField(field.name) for field in type_}
            member_types = {field.name: field.dataType for field in type_}
            others += _others(members, member_types, declared_types[name], f"{path}{name}.")
    return others


def _shown(column: "Column", type_: Any) -> "Column":
    """The value as JSON shows it. A decimal is a text, so that no reader rounds it."""
    if type_.typeName() == "string":
        return F.make_valid_utf8(column)
    return column.cast("string") if type_.typeName() == "decimal" else column
