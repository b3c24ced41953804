"""Splits CSV text into records and fields. A record may span several lines.

A CSV file begins with a header that names the fields of the schema in order, unless the landing
declares `Csv(header=False)`. The header may have additional names (unless `new_columns` is
"refuse"), or lack some names that are not required, but not both. A column without a name, as
pandas and R write for the index, is called `_c` with its position, as in Spark. A file of AWS DMS
may have no header. It may also lack the first column, the operation; the operation is then empty.

**Safety properties** (tests in `land/plan/test_file_text.py`)
- A quoted field is never split at the line breaks inside it.
- If the end of any record is unknown, no record of the file is loaded.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain

from lakehouse.base.text import count_of
from lakehouse.declare.landing import Csv, Dms, Landing
from lakehouse.delta.columns import field_names
from lakehouse.land.plan import records
from lakehouse.land.plan.records import (
    SHOWN_BYTES,
    CsvFields,
    Record,
    Unreadable,
    earlier_names,
)

_LINE_BREAK = re.compile(rb"\r\n|\n|\r")


def csv_records(chunks: Iterator[bytes], landing: Landing) -> Iterator[Record]:
    """The records below the header of a CSV text, each with the fields of the file.

    Raises:
        Unreadable: the header is not accepted, or the end of a record is unknown.
    """
    records = records_with_header(chunks, landing)
    first = next(records, None)
    fields = csv_fields(first, landing)
    if first is not None and not fields.has_header:
        records = chain([first], records)
    return (record._replace(fields=fields) for record in records)


def csv_fields(first: Record | None, landing: Landing) -> CsvFields:
    """The fields of a file with this first record.

    Raises:
        Unreadable: the header is not accepted.
    """
    columns = field_names(landing.schema)
    if isinstance(landing.changes, Dms):
        return _dms_fields(first, landing)
    if not landing.csv.header:
        return CsvFields(columns, has_header=False)
    if first is None:
        expected = landing.csv.delimiter.join(columns)
        raise Unreadable(f"it has no header; land it again with the header {expected}")
    names = csv_names(first.content, landing)
    _check_header(first, names, columns, landing, needed=landing.required)
    return CsvFields(tuple(names), has_header=True)


def line_pattern(csv: Csv) -> str:
    """A regular expression of Python and Java that a line matches if it is a whole record."""
    field = _field_pattern(csv.delimiter, csv.quote).decode()
    separator = re.escape(csv.delimiter)
    return rf"^{field}(?:{separator}{field})*+\z"


def records_with_header(chunks: Iterator[bytes], landing: Landing) -> Iterator[Record]:
    """All records of a CSV text unchanged, including the header, without blank lines.

    Raises:
        Unreadable: the end of a record is unknown. Earlier records have been returned by then.
    """
    pattern = _record_pattern(landing.csv.delimiter, landing.csv.quote)
    blanks = " \t\v\f".replace(landing.csv.delimiter, "").encode()
    limit = records.MAX_RECORD_BYTES
    number = 1
    rest = b""
    for chunk in chain(chunks, [None]):  # `None` is the end of the content
        rest += chunk or b""
        start = 0
        while start < len(rest) and (match := pattern.match(rest, start)):
            # A record that reaches the end of a chunk may continue in the next one.
            may_go_on = match.end() == len(rest) and chunk is not None
            if may_go_on or len(match[1]) > limit:
                break
            start = match.end()
            if match[1].strip(blanks):
                yield Record(number, match[1])
            number += len(_LINE_BREAK.findall(match[0]))
        rest = rest[start:]
        if len(rest) > limit:
            break
    if rest:
        raise Unreadable(
            f"the end of the record that begins in line {number} is unknown: it has a quote that "
            f"is not closed, or not doubled inside quotes, or more than {limit} bytes. Correct the "
            "file and land it again"
        )


def csv_names(header: bytes, landing: Landing) -> list[str]:
    """The unquoted, stripped names in a header. Renamed columns get their present names.

    A column without a name is called by its position: `_c0`.
    """
    quote = landing.csv.quote
    present = earlier_names(landing)
    texts = [field.decode("utf-8", "replace") for field in _fields(header, landing)]
    names = [text.strip(f" \t{quote}").replace(quote * 2, quote) for text in texts]
    return [present.get(name, name) or f"_c{place}" for place, name in enumerate(names)]


def _dms_fields(first: Record | None, landing: Landing) -> CsvFields:
    """The fields of a DMS file, which may lack the header, the operation, or both.

    Source: AWS DMS user guide, "Using Amazon S3 as a target": `AddColumnName` (a header) and
    `IncludeOpForFullLoad`. Neither is on by default.
    """
    declared = field_names(landing.schema)
    if first is None:
        return CsvFields(declared, has_header=False)
    names = csv_names(first.content, landing)
    operation, *row = declared
    if not _is_header(names, declared):
        _check_first_record(names, declared, landing)
        lacks_operation = len(names) == len(row)
        return CsvFields(tuple(row) if lacks_operation else declared, has_header=False)
    columns = declared if operation in names else row
    # Without a before-image, a changed key would go unnoticed, and its old row would be kept.
    images = {*row} - {*landing.change_data.row_fields(declared)}
    _check_header(first, names, columns, landing, needed={*landing.required, *images})
    return CsvFields(tuple(names), has_header=True)


def _check_first_record(names: Sequence[str], declared: Sequence[str], landing: Landing) -> None:
    """Raises `Unreadable` unless the first record of a file without a header can be a row."""
    finding = f"its first record has {count_of(len(names), 'field')}"
    expected = f"{len(declared)} are declared: {landing.csv.delimiter.join(declared)}"
    if len(names) not in (len(declared), len(declared) - 1):
        raise Unreadable(f"{finding}, {expected}")
    if len(names) == len(declared) - 1 and names[0] in landing.change_data.operations:
        raise Unreadable(
            f"{finding} and begins with {names[0]!r}, an operation or a value of {declared[1]}; "
            f"{expected}; land the file with a header, or with all fields"
        )


def _is_header(names: Sequence[str], declared: Sequence[str]) -> bool:
    """Whether a file's first record is a header, perhaps with names in another order or case."""
    lower = [name.lower() for name in names]
    columns = [name.lower() for name in declared]
    return lower[:1] == columns[:1] or {*columns[1:]} <= {*lower} or {*lower} <= {*columns}


def _check_header(
    header: Record,
    names: Sequence[str],
    columns: Sequence[str],
    landing: Landing,
    *,
    needed: Iterable[str],
) -> None:
    """Raises `Unreadable` unless the header has all `columns`, or only lacks some not `needed`.

    Names must be unique, also without regard to case, and the columns in order. The columns that a
    header lacks are null in all its records. It must have at least half of the columns: a file with
    fewer may belong to another table. A header that lacks a column and has an unknown name is not
    accepted, since the unknown name may be a misspelling.
    """
    declared = [name for name in names if name in columns]
    has_others = len(declared) < len(names)
    if declared == [*columns]:
        is_valid = not has_others or landing.new_columns != "refuse"
    else:
        is_in_order = declared == [name for name in columns if name in names]
        has_needed = {*needed} <= {*names} and 2 * len(names) >= len(columns)
        is_valid = is_in_order and has_needed and not has_others
    if is_valid and len({name.lower() for name in names}) == len(names):
        return
    shown = header.content[:SHOWN_BYTES].decode("utf-8", "backslashreplace")
    expected = landing.csv.delimiter.join(field_names(landing.schema))
    raise Unreadable(
        f"its header is {shown!r} and not {expected}. Land it with the declared names, each once, "
        "or declare its own: `lakehouse schema` shows how"
    )


def _fields(record: bytes, landing: Landing) -> list[bytes]:
    """The raw fields of a whole record."""
    pattern = _field(landing.csv.delimiter, landing.csv.quote)
    return [match[1] for match in pattern.finditer(record + landing.csv.delimiter.encode())]


@cache
def _record_pattern(delimiter: str, quote: str) -> re.Pattern[bytes]:
    separator = re.escape(delimiter).encode()
    field = _field_pattern(delimiter, quote)
    return re.compile(rb"(%b(?:%b%b)*+)(\r\n|\n|\r|\Z)" % (field, separator, field))


@cache
def _field(delimiter: str, quote: str) -> re.Pattern[bytes]:
    """The pattern of a field and the delimiter after it."""
    separator = re.escape(delimiter).encode()
    return re.compile(rb"(%b)%b" % (_field_pattern(delimiter, quote), separator))


def _field_pattern(delimiter: str, quote: str) -> bytes:
    """The pattern of one field. Blanks may follow a closing quote.

    A field that does not begin with a quote may contain quotes. Source: RFC 4180, section 2
    """
    separator = re.escape(delimiter).encode()
    mark = re.escape(quote).encode()
    blanks = " \t".replace(delimiter, "").encode()
    quoted = rb"%b(?:[^%b]++|%b%b)*+%b[%b]*+" % (mark, mark, mark, mark, mark, blanks)
    return rb"(?:%b|[^%b%b\r\n][^%b\r\n]*+|)" % (quoted, mark, separator, separator)
