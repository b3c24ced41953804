"""The declaration of the files that are landed for a table."""

import re
from dataclasses import dataclass, field
from typing import Literal

from lakehouse.base.addresses import holds_credentials
from lakehouse.base.errors import Refused
from lakehouse.base.text import either
from lakehouse.declare.change_sources import ChangeSource, Debezium, Dms
from lakehouse.declare.compaction import LAYERS, MIB
from lakehouse.declare.knobs import AMOUNT, YES_OR_NO, Accepts, check_knobs, knob, one_of, whole
from lakehouse.delta.columns import check_columns, field_names

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
# SQS: up to 80 letters, digits, - and _. S3 sends no notifications to a FIFO queue (`….fifo`).
_QUEUE_NAME = re.compile(r"((https?://[^\s@?#]+/)?[A-Za-z0-9_-]{1,80})?")
_QUEUE = Accepts(
    "the name or the URL of an SQS queue, or nothing",
    lambda value: isinstance(value, str) and bool(_QUEUE_NAME.fullmatch(value)),
)


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
    "one ASCII character other than a letter, a digit, a space, a backslash, +, -, . or _",
    lambda value: bool(_SEPARATOR.fullmatch(str(value))),
)
_ENCODING = Accepts("an encoding that Python supports, like utf-16 or cp1252", _is_encoding)


@dataclass(frozen=True, slots=True, kw_only=True)
class Csv:
    """The format of CSV files. The default is RFC 4180, with a header."""

    delimiter: str = knob(",", _ONE_SEPARATOR, "the character between two fields")
    quote: str = knob(
        '"', _ONE_SEPARATOR, "the character around a field; inside the field it is doubled"
    )
    header: bool = knob(
        True, YES_OR_NO, "whether the first record names the columns of the schema, in their order"
    )
    decimal: Literal[".", ","] = knob(
        ".", one_of(".", ","), "the decimal point of numbers; the other one may group their digits"
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


@dataclass(frozen=True, slots=True, kw_only=True)
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
        one_of("rescue", "add", "refuse"),
        'fields that the schema does not name. `"rescue"`: they are kept as JSON in the column'
        ' `_rescued`; `"add"`: each becomes a column of the table; `"refuse"`: the record, or the'
        " CSV file with such a header, goes to quarantine",
    )
    encoding: str = knob(
        "utf-8", _ENCODING, "encoding of JSON and CSV files; files in other encodings are set aside"
    )
    changes: ChangeSource | None = None
    max_file_bytes: int = knob(
        256 * MIB,
        whole(1),
        "a larger file, or a file that decompresses to more than four times this size, is set"
        " aside, unless it is Parquet or CSV that Spark reads itself. A batch of several others"
        " has at most twice this size",
    )
    release_files: int = knob(
        1, whole(1), "the sensor requests a load as soon as this many files wait"
    )
    release_bytes: int = knob(
        0, whole(1, or_zero=True), "the sensor also requests a load if this many bytes wait. 0: off"
    )
    release_minutes: float = knob(
        0,
        AMOUNT,
        "the sensor also requests a load if the oldest file has waited for this many minutes."
        " Required if `release_files` is above 1",
    )
    queue: str = knob(
        "",
        _QUEUE,
        "an SQS queue that receives the bucket's event notifications (S3 only). New files are found"
        " in the queue, and the prefix is listed only once an hour",
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
        if holds_credentials(str(self.queue)) or "@" in str(self.queue):
            raise Refused(
                "Landing.queue holds a user, a password or a signed query. Use an address without "
                "credentials; boto3 finds them itself."
            )
        check_knobs(self)
        if self.queue and isinstance(self.changes, Dms) and not self.changes.position:
            raise Refused(
                f"Landing.queue is {self.queue!r}, and changes=Dms() has no position: the queue"
                " names files in any order, but without a position the order of files is the order"
                " of changes. Either use Dms(position=…), or no queue."
            )
        if self.release_files > 1 and not self.release_minutes:
            raise Refused(
                f"Landing.release_files is {self.release_files} and release_minutes is 0, so the"
                " last files of a day would wait forever. Set release_minutes, too."
            )
        self._check_text()
        self._check_columns()

    def _check_text(self) -> None:
        if self.csv != _PLAIN_CSV and self.format != "csv":
            raise Refused(f"Landing.csv is set, but the format is {self.format!r}. Leave it out.")
        if self.encoding != "utf-8" and self.format not in ("csv", "json"):
            raise Refused(
                f"Landing.encoding is {self.encoding!r}, but the format is {self.format!r}. Leave"
                " it out."
            )

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
        if isinstance(self.changes, Debezium) and self.null_value is not None:
            raise Refused(
                f"Landing.null_value is {self.null_value!r} with changes=Debezium(), whose JSON has"
                " null. Leave it out."
            )
        if self.changes is not None:
            self.changes.check_against(names, self.format)
        if isinstance(self.changes, Dms) and self.records_are_csv and self.null_value is None:
            raise Refused(
                "Landing.null_value is None, but DMS writes nulls in CSV files as its setting"
                ' CsvNullValue says. Use null_value="NULL" (the default of that setting), or its'
                ' value ("" if it is empty).'
            )

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The accepted endings of file names, in lower case."""
        return _SUFFIXES[self.format]

    def takes(self, name: str) -> bool:
        """Whether a file's name has one of the endings, ignoring case. Other files are foreign."""
        return name.lower().endswith(self.suffixes)

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
