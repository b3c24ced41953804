"""The declaration of the files that are landed for a table, and of who wrote its change data."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import ClassVar, Literal

from lakehouse.base.errors import Refused
from lakehouse.base.frozen import frozen
from lakehouse.base.text import either
from lakehouse.declare.knobs import (
    AMOUNT,
    TEXT,
    Accepts,
    check_knobs,
    is_number,
    knob,
    whole,
)
from lakehouse.declare.policies import LAYERS, MIB
from lakehouse.delta.columns import check_columns, field_names, field_types

_WEEK_HOURS = 168.0
_LATENESS = (
    "how many hours a loaded deletion is remembered. During this time, older changes of the deleted"
    " key are ignored"
)
# Limited to ten years, because Spark limits the length of an interval.
_HOURS = Accepts(
    "a number from 0 to 87600 (ten years)", lambda value: is_number(value) and 0 <= value <= 87_600
)
_COLUMN_OR_NONE = Accepts(
    "a column of the schema, or None", lambda value: value is None or TEXT.test(value)
)


@frozen
class Dms:
    """Files that AWS DMS wrote to S3: a full load (`LOAD….csv`), then ongoing changes.

    The landing's schema must list all columns of the files. Rows of the full load count as older
    than all changes, and may lack the operation column. If `position` is empty, changes are ordered
    by file and line. Source: AWS DMS user guide, "Using Amazon S3 as a target" (operation in the
    first column, names of files, `TimestampColumnName`), and "Creating table mappings" (header
    columns like `$AR_H_CHANGE_SEQ`, before-image columns).
    """

    codes: ClassVar[Sequence[str]] = ("I", "U", "D")
    update_code: ClassVar[str] = "U"
    delete_code: ClassVar[str] = "D"
    operation: str = knob("Op", "the column with I, U or D; in CSV, the first column", TEXT)
    position: tuple[str, ...] = knob(
        (),
        "columns that increase with each change, compared in this order",
        Accepts("a tuple of names", lambda value: isinstance(value, tuple)),
    )
    committed_at: str | None = knob(
        None, "the column with the commit time, for `_changed_at`", _COLUMN_OR_NONE
    )
    before_prefix: str = knob(
        "BI_",
        "the prefix of before-image columns. The before-images of the key columns reveal updates"
        " that change a key",
        TEXT,
    )
    lateness_hours: float = knob(_WEEK_HOURS, _LATENESS, _HOURS)

    def __post_init__(self) -> None:
        check_knobs(self)

    def check_against(self, schema: Sequence[str], file_format: str) -> None:
        """Refuses columns that the schema lacks, and a CSV schema that starts with another column.

        In the CSV files of DMS, the first column is the operation.
        """
        check_columns("Dms.operation", (self.operation,), among=schema)
        check_columns("Dms.position", self.position, among=schema)
        if self.committed_at is not None:
            check_columns("Dms.committed_at", (self.committed_at,), among=schema)
        if file_format == "csv" and schema[0] != self.operation:
            raise Refused(
                f"Landing.schema begins with {schema[0]!r}. Use {self.operation!r} as the first"
                " column, as in the CSV files of DMS."
            )

    def row_fields(self, schema: Sequence[str]) -> tuple[str, ...]:
        """The fields of the schema that become columns of the table."""
        images = {f"{self.before_prefix}{name}" for name in schema}
        return tuple(name for name in schema if name != self.operation and name not in images)


@frozen
class Debezium:
    """JSON lines with one Debezium event each, with or without a schema.

    The landing's schema must list the columns of the source table. Changes are ordered by
    `source.lsn` (Postgres), by `source.file`, `pos` and `row` (MySQL), or else by `source.ts_ms`.

    Source: Debezium's reference, "Data change events" of the connectors for PostgreSQL and MySQL
    (op, before, after, source; tombstones), and "New Record State Extraction" (`__op`,
    `__deleted`, `__source_ts_ms`).
    """

    codes: ClassVar[Sequence[str]] = ("c", "r", "u", "d")
    update_code: ClassVar[str] = "u"
    delete_code: ClassVar[str] = "d"
    unwrapped: bool = knob(
        False,
        "True: each line is the changed row, with additional fields `__op` or `__deleted` and"
        " `__source_…`. False: each line is an event with `before` and `after`",
    )
    position: str = knob(
        "",
        "fields of `source` with their types, for example `scn BIGINT`. They replace the default"
        " order of changes",
    )
    decimals: Literal["precise", "string", None] = knob(
        None,
        "the connector's `decimal.handling.mode`, for lines without a schema. With `precise`,"
        " declare each DECIMAL with the scale that it has in the source",
    )
    lateness_hours: float = knob(_WEEK_HOURS, _LATENESS, _HOURS)

    def __post_init__(self) -> None:
        check_knobs(self)
        if self.position and not field_names(self.position):
            raise Refused(
                f"Debezium.position is {self.position!r}. Use fields of source with their types,"
                " like 'scn BIGINT'."
            )

    def row_fields(self, schema: Sequence[str]) -> tuple[str, ...]:
        """The fields of the schema that become columns of the table."""
        return tuple(schema)


ChangeSource = Dms | Debezium


_PREFIX = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9_.=-]*/)+")
# Folders that the lake writes. A file that lands in a table's folder would not be in the table's
# log, and a vacuum would delete it.
_OWN_FOLDERS = (*LAYERS, "archive", "inventory", "quarantine")
_SUFFIXES = {
    "json": (".json", ".jsonl", ".json.gz", ".jsonl.gz", ".json.zst", ".jsonl.zst"),
    "csv": (".csv", ".csv.gz", ".csv.zst"),
    "parquet": (".parquet",),
    "avro": (".avro",),
}


def _is_encoding(name: object) -> bool:
    try:
        # Refuses codecs that do not encode text, like base64.
        "".encode(str(name))
    except LookupError:
        return False
    return True


# Excludes the backslash, which escapes, and characters that names and numbers may contain.
_SEPARATOR = re.compile(r"[\x01\t!-*,/:-@\[\]^`{-~]")
_ONE_SEPARATOR = Accepts(
    "one printable ASCII character other than a letter, a digit, a space, a backslash, +, -, . or "
    "_; a tab; or \\x01",
    lambda value: bool(_SEPARATOR.fullmatch(str(value))),
)
_ENCODING = Accepts("an encoding that Python supports, like utf-16 or cp1252", _is_encoding)


@frozen
class Csv:
    """The format of CSV files. The default is RFC 4180, with a header."""

    delimiter: str = knob(",", "the character between two fields", _ONE_SEPARATOR)
    quote: str = knob(
        '"', "the character around a field; inside the field it is doubled", _ONE_SEPARATOR
    )
    header: bool = knob(
        True, "whether the first record names the columns of the schema, in their order"
    )
    decimal: Literal[".", ","] = knob(
        ".", "the decimal point of numbers; the other one may group their digits"
    )

    def __post_init__(self) -> None:
        check_knobs(self)
        if self.delimiter == self.decimal:
            raise Refused(
                f"Csv.delimiter and Csv.decimal are both {self.decimal!r}. Use Csv(delimiter=';'),"
                " or the delimiter that the files have."
            )
        if self.delimiter == self.quote:
            raise Refused(
                f"Csv.delimiter and Csv.quote are both {self.quote!r}. Use different ones."
            )


_PLAIN_CSV = Csv()


@frozen
class Landing:
    """Files that other programs write below `prefix`, a path relative to the lake's root.

    `schema` is a Spark DDL string of the fields in the files. `derived` maps additional columns to
    SQL expressions over these fields. Records that do not parse, or that lack a `required` field,
    go to quarantine. Column names that start with `_` are reserved for the lake. With `changes`,
    the files hold change data.
    """

    prefix: str
    format: str
    schema: str = ""
    derived: dict[str, str] = field(default_factory=dict[str, str])
    required: tuple[str, ...] = ()
    null_value: str | None = None
    csv: Csv = _PLAIN_CSV
    new_columns: Literal["rescue", "add", "refuse"] = knob(
        "rescue",
        'fields that the schema does not name. `"rescue"`: they are kept as JSON in the column'
        ' `_rescued`; `"add"`: each becomes a column of the table; `"refuse"`: the record, or the'
        " CSV file with such a header, goes to quarantine",
    )
    encoding: str = knob(
        "utf-8", "encoding of JSON and CSV files; files in other encodings are set aside", _ENCODING
    )
    changes: ChangeSource | None = None
    max_file_bytes: int = knob(
        256 * MIB,
        "a larger file, or a file that decompresses to more than four times this size, is set"
        " aside, unless it is Parquet or CSV that Spark reads itself. A batch of several others"
        " has at most twice this size",
        whole(1),
    )
    release_files: int = knob(
        1, "the sensor requests a load as soon as this many files wait", whole(1)
    )
    release_bytes: int = knob(
        0, "the sensor also requests a load if this many bytes wait. 0: off", whole(1, or_zero=True)
    )
    release_minutes: float = knob(
        0,
        "the sensor also requests a load if the oldest file has waited for this many minutes."
        " Required if `release_files` is above 1",
        AMOUNT,
    )

    def __post_init__(self) -> None:
        if self.format not in _SUFFIXES:
            raise Refused(f"Landing.format is {self.format!r}. Use {either(sorted(_SUFFIXES))}.")
        if not _PREFIX.fullmatch(self.prefix) or {".", ".."} & set(self.prefix.split("/")):
            raise Refused(
                f"Landing.prefix is {self.prefix!r}. Use a path below the lake's root that ends"
                " with '/', like landing/orders/"
            )
        top = self.prefix.partition("/")[0]
        if top.lower() in _OWN_FOLDERS:
            raise Refused(
                f"Landing.prefix is {self.prefix!r}, but {top}/ holds the lake's own files. Use"
                " another folder, like landing/"
            )
        check_knobs(self)
        if self.release_files > 1 and not self.release_minutes:
            raise Refused(
                f"Landing.release_files is {self.release_files} and release_minutes is 0, so the"
                " last files of a day would wait forever. Set release_minutes, too."
            )
        if self.csv != _PLAIN_CSV and self.format != "csv":
            raise Refused(f"Landing.csv is set, but the format is {self.format!r}. Leave it out.")
        if self.encoding != "utf-8" and self.format not in ("csv", "json"):
            raise Refused(
                f"Landing.encoding is {self.encoding!r}, but the format is {self.format!r}. Leave"
                " it out."
            )
        self._check_columns()

    def _check_columns(self) -> None:
        names = field_names(self.schema)
        if not self.schema:
            raise Refused(
                "Landing.schema is missing. Use `lakehouse schema FILE` with one of the files: it"
                " prints a schema to copy."
            )
        if not names:
            raise Refused(
                f"Landing.schema is {self.schema!r}. Use a Spark DDL string, like 'order_id STRING,"
                " placed_at TIMESTAMP'."
            )
        check_columns("Landing.schema and derived", (*names, *self.derived))
        check_columns("Landing.required", self.required, among=names)
        reserved = [name for name in (*names, *self.derived) if name.startswith("_")]
        if reserved:
            raise Refused(
                f"Landing column {reserved[0]!r} starts with _, like the lake's own columns. Use a"
                f" name like {reserved[0].lstrip('_')!r}."
            )
        empty = [name for name, expression in self.derived.items() if not expression.strip()]
        if empty:
            raise Refused(f"Landing.derived[{empty[0]!r}] is empty. Use an SQL expression.")
        if isinstance(self.changes, Debezium) and self.format != "json":
            raise Refused(f"Landing.format is {self.format!r} with changes=Debezium(). Use 'json'.")
        if isinstance(self.changes, Debezium) and self.null_value is not None:
            raise Refused(
                f"Landing.null_value is {self.null_value!r} with changes=Debezium(), whose JSON has"
                " null. Leave it out."
            )
        if isinstance(self.changes, Dms):
            self.changes.check_against(names, self.format)
        if isinstance(self.changes, Dms) and self.records_are_csv and self.null_value is None:
            raise Refused(
                "Landing.null_value is None, but DMS writes nulls in CSV files as its setting"
                ' CsvNullValue says. Use null_value="NULL" (the default of that setting), or its'
                ' value ("" if it is empty).'
            )

    @property
    def field_names(self) -> tuple[str, ...]:
        """The names of the schema's fields."""
        return field_names(self.schema)

    @property
    def field_types(self) -> Mapping[str, str]:
        """The types of the schema's fields, by name."""
        return dict(field_types(self.schema))

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The accepted endings of file names, in lower case."""
        return _SUFFIXES[self.format]

    def takes(self, name: str) -> bool:
        """Whether a file's name has one of the endings, ignoring case. Other files are foreign."""
        return format_of(name) == self.format

    @property
    def max_batch_bytes(self) -> int:
        """The most bytes in a batch of several files, as they landed."""
        return 2 * self.max_file_bytes

    @property
    def records_are_csv(self) -> bool:
        """Whether staged records are CSV. Otherwise they are JSON, even for Parquet and Avro."""
        return self.format == "csv"

    @property
    def keeps_empty_texts(self) -> bool:
        """Whether empty CSV fields are empty strings: only for DMS, unless `null_value` is ''."""
        return self.records_are_csv and isinstance(self.changes, Dms) and bool(self.null_value)

    @property
    def column_names(self) -> tuple[str, ...]:
        """The schema's fields, then the derived columns, without the lake's own columns."""
        names = field_names(self.schema)
        if self.changes is not None:
            names = self.changes.row_fields(names)
        return (*names, *self.derived)

    @property
    def change_data(self) -> ChangeSource:
        """The source of the changes. Only valid for change data."""
        assert self.changes is not None, f"{self.prefix} has no change data"
        return self.changes


def format_of(name: str) -> str | None:
    """The format of landed files with this ending; `None` for another ending."""
    formats = (each for each, endings in _SUFFIXES.items() if name.lower().endswith(endings))
    return next(formats, None)


def retried_folder(table_key: str) -> str:
    """The folder below the landing prefix for files with a table's retried lines.

    Only this table loads them.
    """
    return f"_retry/{table_key}/"
