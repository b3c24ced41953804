"""The declaration of the files that are landed for a table."""

import re
from dataclasses import dataclass, field, fields
from typing import Literal

from lakehouse.core.declaration.change_sources import Debezium, Dms, type_of_changes
from lakehouse.core.declaration.column_names import check_columns, field_names
from lakehouse.core.declaration.compaction_policy import LAYERS, MIB
from lakehouse.core.declaration.knobs import (
    AMOUNT,
    YES_OR_NO,
    Accepts,
    check_knobs,
    knob,
    one_of,
    whole,
)
from lakehouse.core.errors import Refused
from lakehouse.core.settings import holds_credentials

_PREFIX = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9_.=-]*/)+")
# Folders that the lake writes itself; a vacuum deletes files in a table's folder that no log has.
_OWN_FOLDERS = (*LAYERS, "quarantine", "inventory")
_SUFFIXES = {
    "json": (".json", ".jsonl", ".json.gz", ".jsonl.gz", ".json.zst", ".jsonl.zst"),
    "csv": (".csv", ".csv.gz", ".csv.zst"),
    "parquet": (".parquet",),
    "avro": (".avro",),
}
_RETRIED = "_retried/"
# SQS: a name has up to 80 letters, digits, - and _. S3 sends no notifications to a queue with an order, whose name ends in .fifo.
_QUEUE_NAME = re.compile(r"((https?://[^\s@?#]+/)?[A-Za-z0-9_-]{1,80})?")
_QUEUE = Accepts(
    "the name or the URL of an SQS queue, or nothing",
    lambda value: isinstance(value, str) and bool(_QUEUE_NAME.fullmatch(value)),
)


def _is_encoding(name: object) -> bool:
    try:
        "".encode(str(name))  # of codecs that are no encodings of text, it takes none
    except LookupError:
        return False
    return True


_AFTER_LOAD = Accepts(
    "keep, delete; to archive loaded files, use keep and a lifecycle rule of the bucket",
    one_of("keep", "delete").test,
)
# Without the backslash, which escapes, and without the signs of numbers and names.
_SIGN = re.compile(r"[\x01\t!-*,/:-@\[\]^`{-~]")
_ONE_SIGN = Accepts(
    "one ASCII character that is in no name or number, and no backslash",
    lambda value: bool(_SIGN.fullmatch(str(value))),
)
_ENCODING = Accepts("an encoding that Python knows, like utf-16 or cp1252", _is_encoding)


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """Files that arrive from outside under `prefix`, relative to the lake's root; `docs/reference/knobs.md` lists all knobs.

    `schema` is a Spark DDL string of the fields in the files; without it the first batch decides, once. `derived` adds columns by SQL
    expressions over them. A row whose `required` field is missing goes to quarantine, as does one that does not parse. Names that start
    with `_` are the lake's own. With `changes` the files hold change data.
    """

    prefix: str
    format: str
    schema: str | None = None
    derived: dict[str, str] = field(default_factory=dict[str, str])
    required: tuple[str, ...] = ()
    null_value: str | None = None
    delimiter: str = knob(",", _ONE_SIGN, "CSV: the sign between two fields")
    quote: str = knob(
        '"',
        _ONE_SIGN,
        "CSV: the sign that may stand around a field; doubled inside it, it stands for itself",
    )
    header: bool = knob(
        True,
        YES_OR_NO,
        "CSV: the first record names the columns, those of the schema in their order",
    )
    new_columns: Literal["rescue", "add", "refuse"] = knob(
        "rescue",
        one_of("rescue", "add", "refuse"),
        "fields that the schema does not name. `rescue`: they are kept as JSON in the column `_rescued`; `add`: each becomes a column of "
        "the table; `refuse`: the record, or the CSV file with such a header, goes to quarantine",
    )
    encoding: str = knob(
        "utf-8", _ENCODING, "JSON and CSV: how text is written; a file that is not is set aside"
    )
    changes: type_of_changes | None = None
    max_batch_files: int = knob(2_000, whole(1), "a batch takes at most so many files")
    max_batch_bytes: int = knob(
        512 * MIB,
        whole(1),
        "a batch of several files takes at most so many bytes, unpacked four times as many",
    )
    max_file_bytes: int = knob(
        256 * MIB,
        whole(1),
        "a larger file, or one that unpacks to more than four times as much, is set aside",
    )

    release_files: int = knob(
        1, whole(1), "the sensor has a batch loaded as soon as so many files wait"
    )
    release_bytes: int = knob(
        0,
        whole(1, or_zero=True),
        "or as soon as they have so many bytes together. 0: their bytes do not count",
    )
    release_minutes: float = knob(
        0,
        AMOUNT,
        "or as soon as the oldest of them has waited so long; wanted where `release_files` is above 1",
    )

    after_load: Literal["keep", "delete"] = knob(
        "keep",
        _AFTER_LOAD,
        "what happens to a loaded file. `delete`: it is deleted once the commit that read it is `keep_days` old",
    )
    queue: str = knob(
        "",
        _QUEUE,
        "on S3: an SQS queue with the bucket's event notifications tells of new files; the prefix is listed once an hour",
    )
    keep_days: float = knob(
        30, AMOUNT, "so long a loaded file stays where it landed, whatever `after_load` says"
    )

    def __post_init__(self) -> None:
        if self.format not in _SUFFIXES:
            raise Refused(
                f"Landing.format is {self.format!r}; accepted: {', '.join(sorted(_SUFFIXES))}"
            )
        if not _PREFIX.fullmatch(self.prefix) or {".", ".."} & set(self.prefix.split("/")):
            near = _near_prefix(self.prefix)
            raise Refused(
                f"Landing.prefix is {self.prefix!r}; accepted: a path below the lake's root that ends with '/', like {near}"
            )
        if (top := self.prefix.partition("/")[0]).lower() in _OWN_FOLDERS:
            near = f"landing/{self.prefix.partition('/')[2]}"
            raise Refused(
                f"Landing.prefix is {self.prefix!r}; {top}/ holds the lake's own tables; accepted: another folder, like {near}"
            )
        if holds_credentials(str(self.queue)) or "@" in str(self.queue):
            raise Refused(
                "Landing.queue holds a user, a password or a signed query; accepted: an address without; keys are found by boto3"
            )
        check_knobs(self)
        if self.queue and isinstance(self.changes, Dms) and not self.changes.position:
            raise Refused(
                f"Landing.queue is {self.queue!r} beside changes=Dms() without a position: files are loaded as they are told of, and their "
                "order would count; accepted: Dms(position=…), or no queue"
            )
        if self.release_files > 1 and not self.release_minutes:
            raise Refused(
                f"Landing.release_files is {self.release_files} and release_minutes is 0: the last files of a day would wait for ever; "
                "accepted: release_minutes beside it"
            )
        self._check_text()
        self._check_columns()

    def _check_text(self) -> None:
        of_text = (
            each
            for each in fields(self)
            if each.name in ("delimiter", "quote", "header", "encoding")
        )
        turned = [each.name for each in of_text if getattr(self, each.name) != each.default]
        if turned and not (
            self.format == "csv" or (self.format == "json" and turned == ["encoding"])
        ):
            raise Refused(
                f"Landing.{turned[0]} is {getattr(self, turned[0])!r} beside format {self.format!r}; accepted: without it"
            )
        if self.delimiter == self.quote:
            raise Refused(
                f"Landing.delimiter and quote are both {self.quote!r}; accepted: two characters"
            )

    def _check_columns(self) -> None:
        names = field_names(self.schema)
        if self.schema is None and self.changes is not None:
            raise Refused(
                f"Landing.schema is missing beside changes={type(self.changes).__name__}(…); accepted: the source table's columns"
            )
        if self.schema is None and not self.header:
            raise Refused(
                "Landing.schema is missing beside header=False, so that no column has a name; accepted: schema=, or a header"
            )
        if self.schema is not None and not names:
            raise Refused(
                f"Landing.schema is {self.schema!r}; accepted: a Spark DDL string, like 'order_id STRING, placed_at TIMESTAMP'"
            )
        check_columns("Landing.schema and derived", (*names, *self.derived))
        check_columns(
            "Landing.required", self.required, among=None if self.schema is None else names
        )
        if own := [name for name in (*names, *self.derived) if name.startswith("_")]:
            raise Refused(
                f"Landing column {own[0]!r} starts with _, as the lake's own columns do; accepted: {own[0].lstrip('_')!r}"
            )
        if empty := [name for name, expression in self.derived.items() if not expression.strip()]:
            raise Refused(
                f"Landing.derived[{empty[0]!r}] is empty; accepted: an SQL expression over the fields"
            )
        if isinstance(self.changes, Debezium) and self.null_value is not None:
            raise Refused(
                f"Landing.null_value is {self.null_value!r} beside changes=Debezium(), whose JSON has null; accepted: without it"
            )
        if self.changes is not None:
            self.changes.check_against(names, self.format)
        if isinstance(self.changes, Dms) and self.records_are_csv and self.null_value is None:
            said = "Landing.null_value is None beside changes=Dms(…) and format 'csv', where DMS writes a null as CsvNullValue says"
            raise Refused(
                f'{said}; accepted: null_value="NULL", the default of that setting, or its value, "" where it is empty'
            )

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The endings of the file names that this landing takes, in lower case."""
        return _SUFFIXES[self.format]

    def takes(self, name: str) -> bool:
        """Whether a file's name has one of the endings, in upper or lower case; any other file is foreign."""
        return name.lower().endswith(self.suffixes)

    @property
    def records_are_csv(self) -> bool:
        """Whether a staged record is CSV; else it is a JSON object, also where the file is Parquet or Avro."""
        return self.format == "csv"

    @property
    def keeps_empty_texts(self) -> bool:
        """Whether a CSV field that holds nothing is an empty text where its column is one: AWS DMS writes a null as `null_value` then."""
        return self.records_are_csv and isinstance(self.changes, Dms) and bool(self.null_value)

    @property
    def column_names(self) -> tuple[str, ...]:
        """The columns that a transform finds, without the lake's own: the schema's fields, then the derived ones."""
        names = field_names(self.schema)
        return (*(names if self.changes is None else self.changes.row_fields(names)), *self.derived)

    @property
    def change_data(self) -> type_of_changes:
        """The shape of the changes in its files; for change data only."""
        assert self.changes is not None, f"{self.prefix} has no change data"
        return self.changes

    @property
    def known_columns(self) -> tuple[str, ...] | None:
        """`column_names`; `None` as long as the schema is neither declared nor inferred."""
        return None if self.schema is None else self.column_names


def is_public(name: str) -> bool:
    """Whether a name is looked at: no part of it begins with `.` or `_`."""
    return not any(part.startswith((".", "_")) for part in name.split("/"))


def retried_folder(table_key: str) -> str:
    """The folder, below the landing prefix, of a table's quarantined lines that are landed again."""
    return f"{_RETRIED}{table_key}/"


def is_retried(name: str) -> bool:
    """Whether a landed file holds quarantined lines that are landed again; only the table they belong to loads it."""
    return name.startswith(_RETRIED)


def _near_prefix(prefix: str) -> str:
    parts = (re.sub(r"[^A-Za-z0-9_.=-]+", "-", part).lstrip("._=-") for part in prefix.split("/"))
    return "/".join([part for part in parts if part] or ["landing"]) + "/"
