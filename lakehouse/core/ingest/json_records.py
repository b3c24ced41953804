"""Parses lines of JSON into records. A line must be exactly one valid JSON object.

Any other line also becomes a record, with the problem that it has. Blank lines are skipped. A text
that begins with `[` is one array instead. Each of its elements must be an object.
"""

import json
import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, cast

from lakehouse.core.changes.json_members import with_present_names
from lakehouse.core.declaration.change_sources import Debezium
from lakehouse.core.declaration.column_names import field_types
from lakehouse.core.declaration.landing import Landing
from lakehouse.core.ingest import records
from lakehouse.core.ingest.json_values import has_misread_value
from lakehouse.core.ingest.records import (
    NOT_JSON,
    NOT_UTF_8,
    SHOWN_BYTES,
    TOO_DEEP,
    UNFIT,
    Record,
    Unreadable,
    earlier_names,
)
from lakehouse.core.ingest.undeclared import others_in_object, with_texts

_ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def _refuse_constant(name: str) -> object:
    raise ValueError(name)  # NaN and the infinities are not JSON


_decoder = json.JSONDecoder(parse_constant=_refuse_constant)
_decode = _decoder.decode
# What stands before an element of an array: a bracket or a comma. JSON knows no other blanks.
_BEFORE_ELEMENT = re.compile(r"[ \t\r\n]*[\[,][ \t\r\n]*")
_END_OF_ARRAY = re.compile(r"[ \t\r\n]*\][ \t\r\n]*\Z")
_EMPTY_ARRAY = re.compile(r"[ \t\r\n]*\[[ \t\r\n]*\][ \t\r\n]*\Z")


def json_records(chunks: Iterator[bytes], landing: Landing) -> Iterator[Record]:
    """The records of a text with JSON lines, or with one array. Blank lines are skipped.

    Raises:
        Unreadable: the text begins with `[`, and is not an array. Raised before the first record.
    """
    fields = dict(field_types(landing.schema))
    first = b""
    for chunk in chunks:
        first += chunk
        if first.strip():
            break
    chunks = chain([first], chunks)
    if first.lstrip().startswith(b"["):
        return _array_records(b"".join(chunks), landing, fields)
    return _line_records(chunks, landing, fields)


def _array_records(content: bytes, landing: Landing, fields: Mapping[str, str]) -> Iterator[Record]:
    """The elements of an array, each as if it were a line, with the number of its first line."""
    try:
        text = content.decode()
        spans = [] if _EMPTY_ARRAY.match(text) else [*_element_spans(text)]
    except (ValueError, RecursionError) as error:
        raise Unreadable(
            f"it begins with [ and is no JSON array of objects ({error}); land it again as one"
            " array, or with one object per line"
        ) from error
    line = 1
    counted = 0
    for start, end in spans:
        line += text.count("\n", counted, start)
        counted = start
        # Strings in JSON have no line breaks, so these are blanks.
        element = text[start:end].replace("\r", " ").replace("\n", " ")
        yield json_record(line, element.encode(), landing, fields)


def _element_spans(text: str) -> Iterator[tuple[int, int]]:
    """The start and the end of each element of a JSON array. Raises `ValueError` if it is none."""
    end = 0
    while _END_OF_ARRAY.match(text, end) is None or not end:
        before = _BEFORE_ELEMENT.match(text, end)
        if before is None or ("[" in before[0]) != (end == 0):
            raise ValueError(f"after character {end}")
        start = before.end()
        _, end = _decoder.raw_decode(text, start)
        yield start, end


def _line_records(
    chunks: Iterator[bytes], landing: Landing, fields: Mapping[str, str]
) -> Iterator[Record]:
    number = 1
    rest = b""
    is_skipping = False
    for chunk in chunks:
        lines = (rest + chunk).splitlines(keepends=True)
        # The last line may continue in the next chunk. If it ends in a carriage return, a line feed
        # may follow there.
        rest = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
        for line in lines:
            if not is_skipping and line.strip():
                yield json_record(number, line.rstrip(b"\r\n"), landing, fields)
            number += 1
            is_skipping = False
        if len(rest) > records.MAX_RECORD_BYTES:
            if not is_skipping:
                yield json_record(number, rest, landing, fields)
            # The bytes up to the next line break belong to the same record. The last byte is kept,
            # because it may be the first half of a line break.
            rest = rest[-1:]
            is_skipping = True
    if not is_skipping and rest.strip():
        yield json_record(number, rest.rstrip(b"\r\n"), landing, fields)


def json_record(number: int, line: bytes, landing: Landing, fields: Mapping[str, str]) -> Record:
    """The record on one line, perhaps with a problem. `fields` maps declared fields to types."""
    if len(line) > records.MAX_RECORD_BYTES:
        problem = f"the line has more than {records.MAX_RECORD_BYTES} bytes, the limit"
        return Record(number, line[:SHOWN_BYTES], problem)
    try:
        return _parsed(number, line, landing, fields)
    except RecursionError:
        return Record(number, line, TOO_DEEP)
    except UnicodeDecodeError:
        return Record(number, line, NOT_UTF_8)
    except ValueError:
        return Record(number, line, NOT_JSON)


def _parsed(number: int, line: bytes, landing: Landing, fields: Mapping[str, str]) -> Record:
    text = line.decode()
    value: object = _decode(text)
    # Half of a surrogate pair cannot be encoded. Spark would replace it with a question mark.
    has_escapes = _ESCAPED_SURROGATE.search(line) is not None
    if has_escapes and _SURROGATE.search(json.dumps(value, ensure_ascii=False)):
        return Record(number, line, "a \\u escape is one half of a character")
    if isinstance(landing.changes, Debezium):
        return _event_record(Record(number, line), value, landing, fields)
    if not isinstance(value, dict):
        return Record(number, line, NOT_JSON)
    # If a field has its earlier name, `content` stays as it was sent, for the quarantine, and Spark
    # parses a copy with the present names (`event`). Otherwise, Spark parses `content`.
    sent = cast("dict[str, Any]", value)
    row, present_text, _, problem = with_present_names(sent, text, earlier_names(landing))
    if problem is None and has_misread_value(row, present_text, landing):
        problem = UNFIT
    others = others_in_object(row, present_text, landing, fields)
    staged = with_texts(row, present_text, landing, fields)
    if row is not sent:
        return Record(number, line, problem, others, event=staged)
    return Record(number, line if staged is text else staged.encode(), problem, others)


def _event_record(
    record: Record, value: object, landing: Landing, fields: Mapping[str, str]
) -> Record:
    """The record with its Debezium event, whose fields are decoded."""
    # Only change data needs this import.
    from lakehouse.core.changes.debezium_event import canonical_event

    assert isinstance(landing.changes, Debezium)
    text = record.content.decode()
    event = canonical_event(value, text, landing.changes, fields, earlier_names(landing))
    if event is None:
        return record._replace(problem=NOT_JSON)
    problem = event.problem
    if problem is None and has_misread_value(event.value, event.text, landing):
        problem = UNFIT
    others = others_in_object(event.value, event.text, landing, fields)
    text = with_texts(event.value, event.text, landing, fields)
    return record._replace(problem=problem, undeclared=others, event=text)
