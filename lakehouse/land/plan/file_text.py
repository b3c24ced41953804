"""Unpacks and decodes the text of a landed file, and splits CSV into records and fields.

A record may span several lines. A CSV file begins with a header that names the fields of the schema
in order, unless the landing declares `Csv(header=False)`. The header may have additional names
(unless `new_columns` is "refuse"), or lack some names that are not required, but not both. A column
without a name, as pandas and R write for the index, is called `_c` with its position, as in Spark.
A file of AWS DMS may have no header. It may also lack the first column, the operation; the
operation is then empty.

**Safety properties** (tests in `land/plan/test_file_text.py`)
- Every byte of a readable text belongs to a record, a line break, a blank line, a CSV header, or a
  byte order mark.
- A quoted field is never split at the line breaks inside it.
- An unreadable file fails before its first record: either all of its records are read, or none. A
  file in which the end of any record is unknown is unreadable.
- Memory holds only one chunk and one record of the unpacked text at a time.
"""

import codecs
import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from io import BytesIO
from itertools import chain
from typing import NamedTuple

from lakehouse.base.text import count_of
from lakehouse.declare.landing import Csv, Dms, Landing, retried_folder
from lakehouse.delta.columns import type_word
from lakehouse.land.plan import records
from lakehouse.land.plan.json_records import json_records, plain_json_lines
from lakehouse.land.plan.records import (
    PLAIN_FORMS,
    SHOWN_BYTES,
    UTF_8,
    CsvFields,
    Record,
    Unreadable,
    earlier_names,
    too_large,
)


def retried_path(table_key: str, landing: Landing, ids: Iterable[tuple[str, int, str]]) -> str:
    """The path of the file with these lines: source file, line, and digest of the source file.

    The same lines always give the same path.
    """
    digest = blake2b(repr(sorted(ids)).encode("utf-8", "surrogateescape"), digest_size=16)
    folder = f"{landing.prefix}{retried_folder(table_key)}"
    return f"{folder}{digest.hexdigest()}{landing.suffixes[0]}"


def csv_fields_text(landing: Landing) -> str | None:
    """The declared CSV fields in order, joined by the delimiter; `None` for other formats."""
    if not landing.records_are_csv:
        return None
    return landing.csv.delimiter.join(landing.field_names)


def are_declared(fields: str | None, landing: Landing) -> bool:
    """Whether the fields of a quarantined CSV record are those of the declaration.

    Fields may have their earlier names. In other formats, a record has no fields recorded.
    """
    if fields is None or not landing.records_are_csv:
        return fields is None and not landing.records_are_csv
    present = earlier_names(landing)
    delimiter = landing.csv.delimiter
    names = [present.get(name, name) for name in fields.split(delimiter)]
    return delimiter.join(names) == csv_fields_text(landing)


def retried_text(lines: Sequence[tuple[str, str | None]], landing: Landing) -> str:
    """The text of a file with these lines, in the table's own format.

    A line of CSV comes with its fields that the schema does not name, as a JSON object. The header
    of a CSV file names the declared fields, then all others.
    """
    if not landing.records_are_csv:
        return "".join(f"{raw}\n" for raw, _ in lines)
    others = [json.loads(undeclared or "{}") for _, undeclared in lines]
    other_names = sorted({name for fields in others for name in fields})
    records = list[str]()
    if landing.csv.header:
        names = (*landing.field_names, *other_names)
        records.append(landing.csv.delimiter.join(_quoted(name, landing) for name in names))
    for (raw, _), fields in zip(lines, others, strict=True):
        values = [_quoted(fields[name], landing) if name in fields else "" for name in other_names]
        records.append(landing.csv.delimiter.join([raw, *values]))
    blanks = csv_blanks(landing.csv)
    for place, record in enumerate(records):
        if not record.strip(blanks):  # a blank line would be ignored
            null_value = None if record else landing.null_value
            records[place] = null_value or _quoted(record, landing)
    return "".join(f"{record}\n" for record in records)


def _quoted(text: str, landing: Landing) -> str:
    quote = landing.csv.quote
    return f"{quote}{text.replace(quote, quote * 2)}{quote}"


def csv_blanks(csv: Csv) -> str:
    """The characters of which a blank line, which is no record, may consist."""
    return " \t\v\f".replace(csv.delimiter, "")


_CHUNK_BYTES = 4 * 1024 * 1024
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_OTHER_MARKS = {
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}

_SIGNATURE_BYTES = 16
# The first bytes of binary formats. No JSON or CSV text begins with them: each signature has a
# control character, a byte that is not UTF-8, or enough of a fixed text. Source: RFC 1952 (gzip),
# RFC 8878 (zstd), the xz, LZ4 and Snappy frame formats, bzip2's `decompress.c`, APPNOTE.TXT (zip),
# the specifications of Parquet and Avro, ORC v1.
_SIGNATURES = {
    "gzip": rb"\x1f\x8b\x08",
    "zstd": rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18",
    "bzip2": rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)",
    "xz": rb"\xfd7zXZ\x00",
    "lz4": rb"\x04\x22\x4d\x18",
    "framed Snappy": rb"\xff\x06\x00\x00sNaPpY",
    "zip": rb"PK(?:\x03\x04|\x05\x06)",
    "7z": rb"7z\xbc\xaf\x27\x1c",
    "Parquet": rb"PAR1\x15",
    # A CSV header with the delimiter \x01 may begin with these letters, too.
    "Avro": rb"Obj\x01(?:[\x02-\x08\x0c\x0e-\x1f]|\n[\x0e-\x1f])",
    "ORC": rb"ORC.{0,12}?[\x00\x02-\x08\x0e-\x1f]",
}
_PATTERNS = {name: re.compile(signature, re.DOTALL) for name, signature in _SIGNATURES.items()}


class Compression(NamedTuple):
    """A compression: its name, and a function that returns the unpacked content in pieces."""

    name: str
    unpack: Callable[[bytes], Iterator[bytes]]


def _gunzip(data: bytes) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=BytesIO(data)) as file:
        yield from iter(lambda: file.read(_CHUNK_BYTES), b"")


GZIP = Compression("gzip", _gunzip)


def read_records(
    data: bytes,
    landing: Landing,
    *,
    compression: Compression | None = None,
    max_content_bytes: int,
) -> Iterator[Record]:
    """The records of a text file's bytes, in order, without blank lines.

    A file that unpacks to more than `max_content_bytes` is unreadable.

    Raises:
        Unreadable: no record can be read. This is raised before the first record is returned.
    """
    if compression is not None:
        _check_packed(data, max_content_bytes, compression)

    def content() -> Iterator[bytes]:
        return _decoded_text(data, landing, compression)

    # A wrong encoding, or a quote that is never closed, may show only at the end of the text. So
    # the whole text is read before the first record is returned.
    if landing.records_are_csv:
        for _ in records_with_header(content(), landing):
            pass
    elif landing.encoding.lower() not in UTF_8:
        for _ in content():
            pass
    split_records = csv_records if landing.records_are_csv else json_records
    yield from split_records(content(), landing)


def simple_lines(data: bytes, landing: Landing) -> tuple[CsvFields | None, Sequence[str]] | None:
    """The lines of a text, the header included, if each of them is a record as it is.

    `None` if the records have to be read one by one (`read_records`).

    Raises:
        Unreadable: the header of the CSV text is not accepted.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    is_utf8 = landing.encoding.lower() in UTF_8 and not text.startswith("\ufeff")
    if not is_utf8 or not 0 < len(data) <= records.MAX_RECORD_BYTES:
        return None
    if not landing.records_are_csv:
        lines = plain_json_lines(text, landing)
        return None if lines is None else (None, lines)
    text = text.removesuffix("\n")
    is_split = landing.csv.quote not in text and "\r" not in text and not _BLANK_LINE.search(text)
    if not is_split or detect_format(data) is not None:
        return None
    lines = text.split("\n")
    return csv_fields(Record(1, lines[0].encode()), landing), lines


def detect_format(content: bytes) -> str | None:
    """The name of the binary format of a file's content; `None` if the content may be text."""
    head = content[:_SIGNATURE_BYTES]
    for name, pattern in _PATTERNS.items():
        if pattern.match(head):
            return name
    return None


def other_mark(content: bytes) -> str | None:
    """The encoding, other than UTF-8, with whose byte order mark a content begins; else `None`."""
    return next((name for mark, name in _OTHER_MARKS.items() if content.startswith(mark)), None)


def text_chunks(data: bytes, compression: Compression | None) -> Iterator[bytes]:
    """The unpacked text of a file in chunks, not yet decoded."""
    if compression is not None:
        return compression.unpack(data)
    return (data[start : start + _CHUNK_BYTES] for start in range(0, len(data), _CHUNK_BYTES))


def content_digest(data: bytes) -> str:
    """The digest that identifies a file's content in the ledger."""
    return blake2b(data, digest_size=16).hexdigest()


def _check_packed(data: bytes, limit: int, compression: Compression) -> None:
    """Raises `Unreadable` unless the whole file can be unpacked, to at most `limit` bytes."""
    if not data:
        raise Unreadable(
            f"it is empty, and a {compression.name} file has at least a header; land it again"
        )
    size = 0
    try:
        for chunk in compression.unpack(data):
            size += len(chunk)
            if size > limit:
                raise too_large(limit)
    except (EOFError, OSError, zlib.error) as error:
        raise Unreadable(
            f"its {compression.name} is damaged after {size} unpacked bytes ({error}); land it "
            "again"
        ) from error


def _decoded_text(
    data: bytes, landing: Landing, compression: Compression | None
) -> Iterator[bytes]:
    """The unpacked text as UTF-8, without a byte order mark.

    Raises:
        Unreadable: the content has a binary format, or another encoding than declared.
    """
    chunks = text_chunks(data, compression)
    first = b""
    while len(first) < _SIGNATURE_BYTES and (chunk := next(chunks, b"")):
        first += chunk
    binary_format = detect_format(first)
    if binary_format is not None:
        content = "its content" if compression is None else f"the content of its {compression.name}"
        raise Unreadable(
            f"{content} is {binary_format} and not {landing.format.upper()}; land it again as "
            "text, plain or packed once with gzip or zstd"
        )
    chunks = chain([first], chunks)
    if landing.encoding.lower() not in UTF_8:
        chunks = _recoded(chunks, landing.encoding)
    elif (encoding := other_mark(first)) is not None:
        raise Unreadable(
            f"it begins with the byte order mark of {encoding}; land it as UTF-8, or declare "
            "Landing.encoding"
        )
    yield next(chunks, b"").removeprefix(BYTE_ORDER_MARK)
    yield from chunks


def _recoded(chunks: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    try:
        for text in codecs.iterdecode(chunks, encoding):
            yield text.encode()
    except UnicodeError as error:
        raise Unreadable(
            f"its encoding is not {encoding}, which Landing.encoding declares ({error}); land it "
            "again, or declare its encoding"
        ) from error


_LINE_BREAK = re.compile(rb"\r\n|\n|\r")
# All blanks that `csv_blanks` may name.
_BLANK_LINE = re.compile(r"^[ \t\v\f]*$", re.MULTILINE)


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
    columns = landing.field_names
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
    """A regular expression of Java that a line matches if it is a whole record."""
    field = _field_pattern(csv).decode()
    separator = re.escape(csv.delimiter)
    return rf"^{field}(?:{separator}{field})*+\z"


# Spark's CSV reader fails at a record with more than 20,480 fields. Source: Spark, CSVOptions
MOST_FIELDS = 20_000


def wide_line_pattern(csv: Csv) -> str:
    """A regular expression of Java that a line with more than `MOST_FIELDS` fields matches."""
    field = _field_pattern(csv).decode()
    return rf"^(?:{field}{re.escape(csv.delimiter)}){{{MOST_FIELDS}}}+"


# Spark's CSV reader takes this character for the end of a text. It drops the rest of the record,
# and reads the next one from its middle. Measured with Spark 4.2.0, univocity-parsers 2.9.1
MISREAD_CHARACTER = "\uffff"
# Other fields may have these characters, so they do not separate the fields of a plain line.
_OF_FORMS = "-+.: "


def plain_csv_pattern(landing: Landing) -> str | None:
    """A regular expression of Python and Java that plain lines match.

    A plain line is UTF-8, and has a plain form, or nothing, in each declared field. Spark's CSV
    reader parses it into the values that the judgement of lines gives (`land.parse_lines`). `None`
    if the declaration has no such lines.
    """
    csv = landing.csv
    types = [*map(type_word, landing.field_types.values())]
    is_clear = not any(each.isalnum() or each in _OF_FORMS for each in (csv.delimiter, csv.quote))
    is_usual = csv.decimal == "." and landing.null_value is None
    # A line of one field may be blank.
    if not (is_clear and is_usual and len(types) > 1 and {*types} <= {"STRING", *PLAIN_FORMS}):
        return None
    separator = re.escape(csv.delimiter)
    mark = re.escape(csv.quote)
    quoted = f"{mark}[^{mark}{MISREAD_CHARACTER}]*+{mark}"
    unquoted = f"[^{mark}{separator}{MISREAD_CHARACTER}]*+"
    forms = {"STRING": f"(?:{quoted}(?:{quoted})*+|{unquoted})"}
    for word, form in PLAIN_FORMS.items():
        forms[word] = f"(?:{mark}(?>{form}){mark}|(?>{form})?+)"
    fields = separator.join(forms[word] for word in types)
    # Spark skips a line of blanks, even if a blank is the delimiter. `$` would also match before a
    # line separator. Source: Spark, CSVExprUtils.filterCommentAndEmpty
    not_blank = r"(?=[\x00-\x20]*+[^\x00-\x20])" if csv.delimiter <= " " else ""
    return rf"^{not_blank}{fields}(?![\s\S])"


def records_with_header(chunks: Iterator[bytes], landing: Landing) -> Iterator[Record]:
    """All records of a CSV text unchanged, including the header, without blank lines.

    Raises:
        Unreadable: the end of a record is unknown. Earlier records have been returned by then.
    """
    separator = re.escape(landing.csv.delimiter).encode()
    field = _field_pattern(landing.csv)
    pattern = re.compile(rb"(%b(?:%b%b)*+)(\r\n|\n|\r|\Z)" % (field, separator, field))
    blanks = csv_blanks(landing.csv).encode()
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
    delimiter = landing.csv.delimiter.encode()
    pattern = rb"(%b)%b" % (_field_pattern(landing.csv), re.escape(delimiter))
    texts = [
        match[1].decode("utf-8", "replace") for match in re.finditer(pattern, header + delimiter)
    ]
    names = [text.strip(f" \t{quote}").replace(quote * 2, quote) for text in texts]
    return [present.get(name, name) or f"_c{place}" for place, name in enumerate(names)]


def _dms_fields(first: Record | None, landing: Landing) -> CsvFields:
    """The fields of a DMS file, which may lack the header, the operation, or both.

    Source: AWS DMS user guide, "Using Amazon S3 as a target": `AddColumnName` (a header) and
    `IncludeOpForFullLoad`. Neither is on by default.
    """
    declared = landing.field_names
    if first is None:
        return CsvFields(declared, has_header=False)
    names = csv_names(first.content, landing)
    operation, *row = declared
    # A header may have the names in another order or case.
    lower = [name.lower() for name in names]
    columns = [name.lower() for name in declared]
    is_header = lower[:1] == columns[:1] or {*columns[1:]} <= {*lower} or {*lower} <= {*columns}
    if not is_header:
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
    if len(names) == len(declared) - 1 and names[0] in landing.change_data.codes:
        raise Unreadable(
            f"{finding} and begins with {names[0]!r}, an operation or a value of {declared[1]}; "
            f"{expected}; land the file with a header, or with all fields"
        )


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
    expected = landing.csv.delimiter.join(landing.field_names)
    raise Unreadable(
        f"its header is {shown!r} and not {expected}. Land it with the declared names, each once, "
        "or declare the names of the file: `lakehouse schema` shows how"
    )


def _field_pattern(csv: Csv) -> bytes:
    """The pattern of one field. Blanks may follow a closing quote.

    A field that does not begin with a quote may contain quotes. Source: RFC 4180, section 2
    """
    separator = re.escape(csv.delimiter).encode()
    mark = re.escape(csv.quote).encode()
    blanks = " \t".replace(csv.delimiter, "").encode()
    quoted = rb"%b(?:[^%b]++|%b%b)*+%b[%b]*+" % (mark, mark, mark, mark, mark, blanks)
    return rb"(?:%b|[^%b%b\r\n][^%b\r\n]*+|)" % (quoted, mark, separator, separator)
