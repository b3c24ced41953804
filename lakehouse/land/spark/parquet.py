"""Landed Parquet files that Spark reads itself: their rows never pass through this process.

1. This process reads a file's footer (one request) and decides whether each value of the file has
   an exact value of the declared type. If not, the file is staged like a small one, or it is set
   aside if it is too large for that.
2. Executors read the file in splits. One expression per column converts its values, and one per
   row gives the reason why the row cannot be loaded.
3. `parse_lines` and the steps after it treat these rows like parsed staged records.

**Safety properties** (tests in `test_parquet.py`)
- The number of rows in the footers is compared with the rows and rejected rows that Spark counts,
  before anything is written.
- A file whose size or time changes fails each statement that reads it (`frozen_files`). The files'
  footers are compared once more after the commit.
- A file that Spark cannot read to its end is set aside, and the batch goes on without it.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.base.errors import Broken
from lakehouse.declare.landing import Landing
from lakehouse.delta.columns import field_names, field_types, type_word
from lakehouse.lake.lake import TableSession
from lakehouse.land.parse_lines import (
    DIGEST,
    ORIGIN,
    PARSED,
    RAW,
    REASON,
    cast_text,
    csv_types,
    is_unfit,
)
from lakehouse.land.plan.batches import Batch, LandedFile, files_of_spark
from lakehouse.land.plan.choose_files import FileRead, read_by_this_process
from lakehouse.land.plan.file_text import content_digest
from lakehouse.land.plan.records import NOT_UTF_8, UNFIT, earlier_names
from lakehouse.land.plan.undeclared import FRACTION, LARGE
from lakehouse.land.read.parquet_and_avro import SQL_TYPES, Calendars, file_calendars, not_gregorian
from lakehouse.land.spark.frozen_files import FrozenFiles
from lakehouse.land.undeclared_columns import UNDECLARED
from lakehouse.spark import functions as F  # noqa: N812
from lakehouse.spark.frames import evaluated_once, literal_path
from lakehouse.spark.statements import quote
from lakehouse.store import Store, StoredFile

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField

# Most footers are smaller, so that one request reads a footer.
_FOOTER_BYTES = 64 * 1024
# A length above this is damaged.
_LARGEST_FOOTER_BYTES = 64 * 1024 * 1024
_MAGIC = b"PAR1"
# The types with which Spark reads a column, by Arrow's name of the column's type.
_READ_AS = {
    **dict.fromkeys(("string", "large_string"), "STRING"),
    **{
        name: type_
        for name, type_ in SQL_TYPES.items()
        if name not in ("uint64", "halffloat", "date64[ms]", "binary_view")
    },
}
# Spark's names of declared types, by the words of a DDL string.
_KINDS = {
    "BOOLEAN": "boolean",
    **dict.fromkeys(("TINYINT", "BYTE"), "byte"),
    **dict.fromkeys(("SMALLINT", "SHORT"), "short"),
    **dict.fromkeys(("INT", "INTEGER"), "integer"),
    **dict.fromkeys(("BIGINT", "LONG"), "long"),
    **dict.fromkeys(("FLOAT", "REAL"), "float"),
    "DOUBLE": "double",
    **dict.fromkeys(("DECIMAL", "DEC", "NUMERIC"), "decimal"),
    "STRING": "string",
    "BINARY": "binary",
    "DATE": "date",
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_LTZ"), "timestamp"),
    "TIMESTAMP_NTZ": "timestamp_ntz",
}
_WHOLE = ("byte", "short", "integer", "long")
_NUMBERS = {"TINYINT", "SMALLINT", "INT", "BIGINT"}
# The declared types for which the values of a column are exact, by the type of the column in the
# file. Texts for DECIMAL, DATE and times are checked by their form.
_FITS: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(_NUMBERS, (*_WHOLE, "float", "double", "decimal", "string")),
    "BOOLEAN": ("boolean", "string"),
    "FLOAT": ("float", "double"),
    "DOUBLE": ("double",),
    "DECIMAL": ("decimal",),
    "STRING": ("string", "decimal", "date", "timestamp", "timestamp_ntz"),
    "BINARY": ("binary", "string"),
    "DATE": ("date", "string"),
    "TIMESTAMP": ("timestamp",),
    "TIMESTAMP_NTZ": ("timestamp_ntz", "timestamp"),
}
# The kinds of undeclared columns, as `NewColumns` counts those of JSON values.
_ADDED_AS = {**dict.fromkeys(_NUMBERS, LARGE), "BOOLEAN": "BOOLEAN", "DOUBLE": FRACTION}
_TEXT_OPTIONS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_READ_OPTIONS = {
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    "parquet.page.verify-checksum.enabled": "true",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Leaf:
    """A column of a file, as Spark reads it. `is_nanos`: its times are read as whole numbers."""

    name: str
    type: str
    is_nanos: bool = False
    is_int96: bool = False

    @property
    def word(self) -> str:
        """The type without its precision."""
        return self.type.partition("(")[0]


@dataclass(frozen=True, kw_only=True)
class Footer:
    """What a Parquet file's footer shows. `digest` identifies the file's content."""

    metadata: pq.FileMetaData
    digest: str

    @cached_property
    def leaves(self) -> tuple[_Leaf, ...] | None:
        """The columns; `None` if Spark cannot read one of them as it is, or a name is not clear."""
        schema = self.metadata.schema
        try:
            kinds = schema.to_arrow_schema()
        except (pa.ArrowException, NotImplementedError):
            return None  # a type that Arrow does not know: Spark does not read this file
        lower = Counter(name.lower() for name in kinds.names)
        if len(lower) < len(kinds.names) or "_metadata" in lower or len(kinds) != len(schema):
            return None  # the last: nested columns
        leaves = [_leaf(schema.column(place), kind.type) for place, kind in enumerate(kinds)]
        known = [leaf for leaf in leaves if leaf is not None]
        return tuple(known) if len(known) == len(leaves) else None

    @cached_property
    def calendars(self) -> Calendars:
        """Whether dates and times are known to be Gregorian."""
        metadata = {
            key.decode(errors="replace"): value.decode(errors="replace")
            for key, value in (self.metadata.metadata or {}).items()
        }
        return file_calendars(metadata, self.metadata.created_by or None)


def read_footer(store: Store, path: str) -> Footer | None:
    """The footer of a Parquet file; `None` if the file has none that can be read."""
    end = store.read_end(path, _FOOTER_BYTES)
    if len(end) < 12 or end[-4:] != _MAGIC:
        return None
    size = int.from_bytes(end[-8:-4], "little") + 8
    if size > _LARGEST_FOOTER_BYTES:
        return None
    if size > len(end):
        end = store.read_end(path, size)
    footer = end[-size:]
    try:
        metadata = pq.read_metadata(pa.BufferReader(footer))
    except (pa.ArrowException, OSError):
        return None
    return Footer(metadata=metadata, digest=content_digest(footer))


def read_by_spark(store: Store, path: str, file: LandedFile, landing: Landing) -> FileRead | None:
    """The file as Spark will read it; `None` if this process has to read it.

    A file that this process must not read because of its size, either, has a problem.
    """
    footer = read_footer(store, path)
    problem = "its footer cannot be read. Land an undamaged copy"
    if footer is not None:
        problem = _why_not(footer, landing)
        if problem is None:
            return FileRead(
                size_bytes=file.size_bytes,
                digest=footer.digest,
                record_count=footer.metadata.num_rows,
                by_spark=True,
                undeclared=_undeclared_kinds(footer, landing),
            )
    return read_by_this_process(file, landing, problem)


def planned_read(store: Store, path: str, file: LandedFile) -> FileRead:
    """A file of a planned batch that Spark read. A change shows in the digest of the result."""
    footer = read_footer(store, path)
    return FileRead(
        size_bytes=file.size_bytes,
        digest="changed" if footer is None else footer.digest,
        record_count=0 if footer is None else footer.metadata.num_rows,
        by_spark=True,
    )


def parquet_lines(session: TableSession, batch: Batch) -> "list[DataFrame]":
    """Frames like `parse_lines.staged_lines`, already parsed, one for all files of one shape.

    Raises:
        Broken: a file is gone, or is not the file of the batch any more.
    """
    landing = session.table.landing
    groups = defaultdict[tuple[Any, ...], list[tuple[LandedFile, StoredFile]]](list)
    footers = dict[tuple[Any, ...], Footer]()
    for file in files_of_spark(batch):
        stored, footer = _checked(session, batch, file)
        shape = (footer.leaves, footer.calendars)
        groups[shape].append((file, stored))
        footers[shape] = footer
    return [
        _lines(session, batch, files, footers[shape], landing) for shape, files in groups.items()
    ]


def _checked(session: TableSession, batch: Batch, file: LandedFile) -> tuple[StoredFile, Footer]:
    """The file as it is stored now, and its footer, if it is still the file of the batch."""
    store = session.lake.store
    path = f"{batch.prefix}{file.name}"
    subject = f"load of {session.key}: batch {batch.number}, file {file.name!r}"
    stored = store.stat(path)
    if stored is None:
        raise Broken(f"{subject}: it is gone from {batch.prefix}. Put it back, and load again")
    footer = read_footer(store, path)
    if footer is None or (footer.digest, stored.size_bytes) != (file.digest, file.size_bytes):
        raise Broken(
            f"{subject}: it has changed since the batch was planned. Restore the old file, and "
            "land only new records, in a file with another name"
        )
    why_not = _why_not(footer, session.table.landing)
    if why_not is not None:
        raise Broken(
            f"{subject}: Spark could read it when the batch was planned, and now {why_not}. "
            "Restore the declaration, load the batch, and then change the declaration"
        )
    return stored, footer


def _why_not(footer: Footer, landing: Landing) -> str | None:
    """Why Spark must not read the file with this declaration; `None` if it can."""
    leaves = footer.leaves
    if leaves is None:
        return "a column is nested, or of a type or a name that Spark does not read as it is"
    present = _present_names(leaves, landing)
    if len({*present}) < len(present):
        return "it has a column under its earlier and its present name"
    declared = dict(field_types(landing.schema))
    for name, leaf in zip(present, leaves, strict=True):
        type_ = declared.get(name)
        if type_ is None:
            continue
        kind = _KINDS.get(type_word(type_), "")
        if kind not in _FITS[leaf.word]:
            return f"its column {leaf.name} is {leaf.type}, which is not read as {type_}"
    return None


def _present_names(leaves: Sequence[_Leaf], landing: Landing) -> list[str]:
    present = earlier_names(landing)
    return [present.get(leaf.name, leaf.name) for leaf in leaves]


def _leaf(column: Any, kind: pa.DataType) -> _Leaf | None:
    """A top-level column as Spark reads it; `None` if its values are not read as they are."""
    name = column.name
    if column.path != name:
        return None
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_timestamp(kind):
        if column.physical_type == "INT96":
            return _Leaf(name=name, type="TIMESTAMP", is_int96=True)
        is_zoned = '"isAdjustedToUTC": true' in column.logical_type.to_json()
        type_ = "TIMESTAMP" if is_zoned else "TIMESTAMP_NTZ"
        return _Leaf(name=name, type=type_, is_nanos=kind.unit == "ns")
    if pa.types.is_decimal128(kind) and 0 <= kind.scale <= kind.precision:
        return _Leaf(name=name, type=f"DECIMAL({kind.precision},{kind.scale})")
    if pa.types.is_fixed_size_binary(kind):
        return _Leaf(name=name, type="BINARY")
    type_ = _READ_AS.get(str(kind))
    return None if type_ is None else _Leaf(name=name, type=type_)


def _undeclared_kinds(footer: Footer, landing: Landing) -> dict[str, str]:
    """The undeclared columns of a file, with their kinds (`NewColumns`).

    A column that has no value, by its statistics, is left out.
    """
    types = dict[str, str]()
    for place, leaf in enumerate(footer.leaves or ()):
        name = earlier_names(landing).get(leaf.name, leaf.name)
        if name not in field_names(landing.schema) and not _is_empty(footer.metadata, place):
            types[name] = _ADDED_AS.get(leaf.word, "STRING")
    return types


def _is_empty(metadata: pq.FileMetaData, place: int) -> bool:
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        statistics = group.column(place).statistics
        nulls = None if statistics is None else statistics.null_count
        if nulls != group.num_rows:
            return False
    return True


def _lines(
    session: TableSession,
    batch: Batch,
    files: Sequence[tuple[LandedFile, StoredFile]],
    footer: Footer,
    landing: Landing,
) -> "DataFrame":
    leaves = footer.leaves
    assert leaves is not None
    root = session.lake.settings.spark_root
    ddl = ", ".join(
        f"{quote(leaf.name)} {'BIGINT' if leaf.is_nanos else leaf.type}" for leaf in leaves
    )
    paths = [literal_path(f"{root}/{batch.prefix}{file.name}") for file, _ in files]
    landed = session.spark.read.schema(ddl).options(**_READ_OPTIONS).parquet(*paths)
    columns = {
        name: (leaf, _column(leaf))
        for name, leaf in zip(_present_names(leaves, landing), leaves, strict=True)
    }
    declared = csv_types(landed, landing)
    values = [_typed(field, *columns.get(field.name, (None, None))) for field in declared]
    others = [
        _shown(leaf, column).alias(name)
        for name, (leaf, column) in columns.items()
        if name not in field_names(landing.schema)
    ]
    undeclared = list["Column"]()
    if others:
        text = F.nullif(F.to_json(F.struct(*others), _TEXT_OPTIONS), F.lit("{}"))
        undeclared.append(text.alias(UNDECLARED))
    raw = F.struct(*[_shown(leaf, column).alias(leaf.name) for leaf, column in columns.values()])
    frozen = FrozenFiles(session.lake, batch, files)
    reason = frozen.reason
    for leaf, column in columns.values():
        reason = _why_bad(reason, leaf, column, footer.calendars)
    for _, unfit in values:
        if unfit is not None:
            reason = reason.when(unfit, UNFIT)
    return landed.select(
        F.struct(*[value for value, _ in values]).alias(PARSED),
        frozen.path.alias(ORIGIN[0]),
        (F.col("_metadata.row_index") + 1).alias(ORIGIN[1]),
        F.col("_metadata.file_modification_time").alias(ORIGIN[2]),
        F.to_json(raw, {**_TEXT_OPTIONS, "ignoreNullFields": "false"}).alias(RAW),
        *undeclared,
        frozen.digest.alias(DIGEST),
        evaluated_once(reason).alias(REASON),
    )


def _column(leaf: _Leaf) -> "Column":
    column = F.col(quote(leaf.name))
    if leaf.is_nanos:  # cut to microseconds, also before 1970
        column = F.timestamp_micros(F.floor((column - F.pmod(column, F.lit(1_000))) / F.lit(1_000)))
        return column if leaf.type == "TIMESTAMP" else column.cast("timestamp_ntz")
    return column


def _typed(
    field: "StructField", leaf: _Leaf | None, column: "Column | None"
) -> "tuple[Column, Column | None]":
    """The value of a declared field, and whether the file's value does not fit it."""
    metadata = field.metadata or None
    # A text, because PySpark's own STRING type would name a collation in the table's schema.
    type_ = field.dataType.simpleString()
    if leaf is None or column is None:
        return F.lit(None).cast(type_).alias(field.name, metadata=metadata), None
    kind = field.dataType.typeName()
    unfit = None
    if leaf.word == "STRING" and kind != "string":
        value = cast_text(column, field)
        unfit = is_unfit(column, value, field)
    elif leaf.word == "BINARY" and kind == "string":
        value = F.base64(column)
    elif leaf.type == type_.upper():
        value = column
    else:
        value = column.try_cast(type_)
        unfit = column.isNotNull() & value.isNull()
    return value.alias(field.name, metadata=metadata), unfit


def _shown(leaf: _Leaf, column: "Column") -> "Column":
    """The value as JSON shows it. A decimal is a text, so that no reader rounds it."""
    if leaf.word == "STRING":
        return F.make_valid_utf8(column)
    return column.cast("string") if leaf.word == "DECIMAL" else column


def _why_bad(reason: "Column", leaf: _Leaf, column: "Column", calendars: Calendars) -> "Column":
    """Adds to the cases of `reason`: a value that no column could hold as it was meant."""
    if leaf.word == "STRING":
        return reason.when(~F.is_valid_utf8(column), f"{leaf.name} is {NOT_UTF_8}")
    is_time = leaf.word in ("TIMESTAMP", "TIMESTAMP_NTZ")
    if leaf.word != "DATE" and not is_time:
        return reason
    is_gregorian = calendars.are_int96_gregorian if leaf.is_int96 else calendars.are_gregorian
    if not is_gregorian:
        word, day = ("time", "1582-10-16") if is_time else ("date", "1582-10-15")
        before, after = not_gregorian(word, day)
        text = F.concat(F.lit(f"{leaf.name}: {before}"), column.cast("string"), F.lit(after))
        reason = reason.when(column < F.lit(day).cast(leaf.word.lower()), text)
    return reason
