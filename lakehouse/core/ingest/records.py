"""The content of a landed file as records: lines of JSON, or records of CSV, which may span several lines.

A record becomes a row or a quarantined line later; here it is only found, whole. A file that cannot be read fails before its first
record is given, so that all of its records are known or none.

**Safety properties**
- Every byte of a readable file belongs to a record, a line break, a blank line, or a CSV header
  (`core/ingest/test_records.py`).
- A quoted CSV field is never split at the line breaks inside it (`core/ingest/test_records.py`).
- A CSV file with a record whose end is unknown gives no record at all
  (`core/ingest/test_records.py`).
- Memory holds one chunk and one record, whatever the size of the unpacked file.
"""

import codecs
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple, cast

from lakehouse.core.changes.debezium_event import canonical_event
from lakehouse.core.declaration.change_sources import Debezium, Dms
from lakehouse.core.declaration.column_names import field_names, field_types
from lakehouse.core.declaration.landing import Landing
from lakehouse.core.ingest.content_format import SIGNATURE_BYTES, detect_format
from lakehouse.core.ingest.csv_fields import (
    LINE_BREAK,
    csv_names,
    csv_record,
    no_end,
)
from lakehouse.core.ingest.csv_headers import (
    declared_alone,
    header_advice,
    is_header,
    lacks_columns_alone,
    others_in_header,
)
from lakehouse.core.ingest.file_text import Compression, first_chunks, text_chunks
from lakehouse.core.ingest.undeclared import (
    others_in_object,
    with_texts,
)

MIB = 1024 * 1024
# Jackson, which parses JSON for Spark, takes no text of more than 20,000,000 characters.
# Source: jackson-core, StreamReadConstraints.DEFAULT_MAX_STRING_LEN
MAX_RECORD_BYTES = 16 * MIB
TOO_DEEP = "a value lies too deep in others"
# Of a record that is too long, so many bytes are kept to recognise it by.
_SHOWN_BYTES = 1_000
_UTF_8 = ("utf-8", "utf8")
_UTF_8_MARK = b"\xef\xbb\xbf"
_OTHER_MARKS = {
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
_ESCAPED_SURROGATE, _SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]"), re.compile(r"[\ud800-\udfff]")


def _no_constant(name: str) -> object:
    raise ValueError(name)  # NaN and its like are no JSON


_JSON = json.JSONDecoder(parse_constant=_no_constant)


class Unreadable(Exception):
    """A file of which no record can be read; the text says why, and what would be read."""


class Record(NamedTuple):
    """One record: the line on which it begins, counted from 1, its bytes without the line break, and why it cannot be a row (or `None`)."""

    line: int
    content: bytes
    problem: str | None = None
    is_object: bool = False  # it is JSON, one object and nothing behind it; else a more lenient parser may still find an object
    undeclared: str | None = (
        None  # the fields beside those of the schema, as a JSON object; of CSV they are not among the bytes
    )
    event: str | None = None  # of Debezium's lines: the decoded event, or null for a tombstone


def read_records(
    data: bytes,
    landing: Landing,
    *,
    compression: Compression | None = None,
    max_content_bytes: int,
    until_byte: int | None = None,
) -> Iterator[Record]:
    """The records of a text file's bytes, in order; blank lines are left out. At most `max_content_bytes` are unpacked.

    With `until_byte` they are those that the file would have if its text ended there.

    A CSV file begins with a header that names the fields of the schema in order, unless `landing` says that it has none. The header may
    have other names between them, or lack some that are not required, but not both. A file of AWS DMS may have no header, and may lack the
    first column, the operation, which is empty then.

    Raises:
        Unreadable: before the first record.
    """
    if compression is not None:
        _check_packed(data, max_content_bytes, compression)

    def content() -> Iterator[bytes]:
        chunks = text_chunks(data, compression)
        if until_byte is not None:
            chunks = first_chunks(chunks, until_byte)
        return _content(chunks, landing, compression)

    # A file of another encoding, or with a quote that is not closed, shows it before its first record is given.
    if landing.records_are_csv:
        for _ in _csv_record_bytes(content(), landing):
            pass
    elif landing.encoding.lower() not in _UTF_8:
        for _ in content():
            pass
    of_csv = _dms_records if isinstance(landing.changes, Dms) else _csv_records
    yield from (of_csv if landing.records_are_csv else _json_records)(content(), landing)


def too_large(limit: int) -> Unreadable:
    """The error for a file that unpacks to more than `limit` bytes."""
    return Unreadable(
        f"it unpacks to more than {limit} bytes; land it in smaller files, or raise Landing.max_file_bytes"
    )


def _content(
    chunks: Iterator[bytes], landing: Landing, compression: Compression | None
) -> Iterator[bytes]:
    chunks = _text_only(chunks, landing, compression)
    return _unmarked(
        chunks if landing.encoding.lower() in _UTF_8 else _recoded(chunks, landing.encoding)
    )


def _text_only(
    chunks: Iterator[bytes], landing: Landing, compression: Compression | None
) -> Iterator[bytes]:
    """The same content; content of a binary format is an error, whose lines would be thousands of senseless records."""
    first = _first_bytes(chunks, SIGNATURE_BYTES)
    if (found := detect_format(first)) is not None:
        what = "its content" if compression is None else f"the content of its {compression.name}"
        raise Unreadable(
            f"{what} is {found} and not {landing.format.upper()}; land it again as text, plain or packed once with gzip or zstd"
        )
    yield first
    yield from chunks


def _first_bytes(chunks: Iterator[bytes], count: int) -> bytes:
    """The first chunks, with `count` bytes or more if there are so many."""
    first = b""
    while len(first) < count and (chunk := next(chunks, b"")):
        first += chunk
    return first


def _recoded(chunks: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    try:
        for text in codecs.iterdecode(chunks, encoding):
            yield text.encode()
    except UnicodeError as error:
        raise Unreadable(
            f"it is not {encoding}, as Landing.encoding says ({error}); land it again, or declare what it is"
        ) from error


def _check_packed(data: bytes, limit: int, compression: Compression) -> None:
    """Nothing for a file that can be unpacked to its end, where damage may show alone, and to `limit` bytes at most."""
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
            f"its {compression.name} is damaged after {size} unpacked bytes ({error}); land it again"
        ) from error


def _unmarked(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The content without UTF-8's byte order mark; a mark of another encoding is an error."""
    first = _first_bytes(chunks, len(max(_OTHER_MARKS, key=len)))
    for mark, encoding in _OTHER_MARKS.items():
        if first.startswith(mark):
            raise Unreadable(
                f"it begins with the byte order mark of {encoding}; land it as UTF-8, or declare Landing.encoding"
            )
    yield first.removeprefix(_UTF_8_MARK)
    yield from chunks


def _json_records(chunks: Iterator[bytes], landing: Landing) -> Iterator[Record]:
    number, rest, skipping, fields = 1, b"", False, dict(field_types(landing.schema))
    for chunk in chunks:
        lines = (rest + chunk).splitlines(keepends=True)
        # The last line may go on in the next chunk; so may its line break, after a carriage return.
        rest = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
        for line in lines:
            if not skipping and line.strip():
                yield json_record(number, line.rstrip(b"\r\n"), landing, fields)
            number, skipping = number + 1, False
        if len(rest) > MAX_RECORD_BYTES:
            if not skipping:
                yield json_record(number, rest, landing, fields)
            # The bytes that follow up to the line break are of the same record.
            rest, skipping = rest[-1:], True
    if not skipping and rest.strip():
        yield json_record(number, rest.rstrip(b"\r\n"), landing, fields)


def _csv_records(chunks: Iterator[bytes], landing: Landing) -> Iterator[Record]:
    records = _csv_record_bytes(chunks, landing)
    if not landing.header:
        return records
    columns, header = field_names(landing.schema), next(records, None)
    wanted = landing.delimiter.join(columns)
    if header is None:
        raise Unreadable(f"it has no header; the header {wanted} is wanted")
    names = csv_names(header.content, landing)
    if names == [*columns]:
        return records
    others = others_in_header(names, columns, are_refused=landing.new_columns == "refuse")
    if others is None and not lacks_columns_alone(names, columns, landing.required):
        found = f"its header is {_shown(header.content)!r} and not {wanted}"
        raise Unreadable(f"{found}{header_advice(names, columns, landing)}")
    return declared_alone(records, names, columns, landing)


def _dms_records(chunks: Iterator[bytes], landing: Landing) -> Iterator[Record]:
    """Source: AWS DMS user guide, "Using Amazon S3 as a target": `AddColumnName` (a header), `IncludeOpForFullLoad`; neither by default."""
    assert isinstance(landing.changes, Dms)
    records = _csv_record_bytes(chunks, landing)
    first = next(records, None)
    if first is None:
        return
    names, wanted = csv_names(first.content, landing), [*field_names(landing.schema)]
    has_header, all_wanted = is_header(names, wanted), landing.delimiter.join(wanted)
    columns = wanted if wanted[0] in names else wanted[1:]
    others = (
        others_in_header(names, columns, are_refused=landing.new_columns == "refuse")
        if has_header
        else {}
    )
    # Without a before-image a changed key would go unnoticed, so that its old row would stay.
    images = {*wanted[1:]} - {*landing.changes.row_fields(wanted)}
    if others is None and not lacks_columns_alone(names, columns, {*landing.required, *images}):
        found = f"its header is {_shown(first.content)!r} and not {all_wanted}"
        raise Unreadable(f"{found}{header_advice(names, columns, landing)}")
    found = f"its first record has {len(names)} field(s)"
    if not has_header and len(names) not in (len(wanted), len(wanted) - 1):
        raise Unreadable(f"{found}, {len(wanted)} are wanted: {all_wanted}")
    lacks_operation = wanted[0] not in names if has_header else len(names) == len(wanted) - 1
    if lacks_operation and not has_header and names[0] in landing.changes.operations:
        found += f" and begins with {names[0]!r}, an operation or a value of {wanted[1]}"
        raise Unreadable(
            f"{found}; {len(wanted)} are wanted: {all_wanted}; land it with a header, or with all of them"
        )
    is_whole = not has_header or names == columns
    behind = records if is_whole else declared_alone(records, names, columns, landing)
    for record in behind if has_header else chain([first], records):
        yield (
            record._replace(content=landing.delimiter.encode() + record.content)
            if lacks_operation
            else record
        )


def _csv_record_bytes(chunks: Iterator[bytes], landing: Landing) -> Iterator[Record]:
    """The records as they stand there; one whose end is unknown makes the content `Unreadable` on the way."""
    pattern, blanks = (
        csv_record(landing.delimiter, landing.quote),
        " \t\v\f".replace(landing.delimiter, "").encode(),
    )
    number, rest = 1, b""
    for chunk in chain(chunks, [None]):  # the end of the content
        rest, place = rest + (chunk or b""), 0
        # A record that reaches to the end of a chunk may go on in the next one.
        while (
            (found := pattern.match(rest, place))
            and (found.end() < len(rest) or chunk is None)
            and place < len(rest)
        ):
            if len(found[1]) > MAX_RECORD_BYTES:
                break
            place = found.end()
            if found[1].strip(blanks):
                yield Record(number, found[1])
            number += len(LINE_BREAK.findall(found[0]))
        rest = rest[place:]
        if len(rest) > MAX_RECORD_BYTES:
            break
    if rest:
        raise Unreadable(
            f"{no_end(rest, number, landing, MAX_RECORD_BYTES)}, so that what follows is no record; land it again, corrected"
        )


def json_record(number: int, line: bytes, landing: Landing, fields: Mapping[str, str]) -> Record:
    """The record on one line of JSON; `fields` are the declared ones with their types."""
    if len(line) > MAX_RECORD_BYTES:
        return Record(
            number,
            line[:_SHOWN_BYTES],
            f"the line has more than {MAX_RECORD_BYTES} bytes, the limit",
        )
    try:
        text = line.decode()
        found, is_strict = _decoded(text)
    except RecursionError:
        return Record(number, line, TOO_DEEP)
    except ValueError:  # a more lenient parser may find an object in it
        return Record(number, line)
    is_event = isinstance(landing.changes, Debezium)
    try:
        # Half of a surrogate pair is in no encoding, and Spark would replace it by a question mark.
        if _ESCAPED_SURROGATE.search(line) and _SURROGATE.search(
            json.dumps(found, ensure_ascii=False)
        ):
            return Record(
                number, line, "a \\u escape is one half of a character", isinstance(found, dict)
            )
        if is_event:
            event = _event_record(Record(number, line, None, is_strict), found, landing, fields)
            return event if is_strict else Record(number, line)
        if isinstance(found, dict):
            row = cast("dict[str, Any]", found)
            others = others_in_object(row, text, landing, fields)
            if others is None or is_strict or _decoded(others)[1]:
                return Record(
                    number, with_texts(row, text, landing, fields).encode(), None, is_strict, others
                )
    except RecursionError:
        return Record(number, line, TOO_DEEP)
    return Record(number, line)


def _event_record(
    record: Record, found: object, landing: Landing, fields: Mapping[str, str]
) -> Record:
    """The record with its event, whose fields are decoded; without one it is no event."""
    assert isinstance(landing.changes, Debezium)
    event = canonical_event(found, record.content.decode(), landing.changes, fields)
    if event is None:
        return record._replace(is_object=False)
    others = others_in_object(event.value, event.text, landing, fields)
    text = with_texts(event.value, event.text, landing, fields)
    return record._replace(problem=event.problem, undeclared=others, event=text)


def _decoded(text: str) -> tuple[object, bool]:
    """A JSON value, and whether it is one without NaN and the infinities, which many programs write."""
    try:
        return _JSON.decode(text), True
    except ValueError:
        return json.loads(text), False


def _shown(content: bytes) -> str:
    return content[:_SHOWN_BYTES].decode("utf-8", "backslashreplace")
