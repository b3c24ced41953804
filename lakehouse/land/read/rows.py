"""Rows of landed Parquet and Avro files as records, as if each were a line of a JSON file.

So rows of all formats are staged, parsed, counted and rejected in the same way. Decimals become
JSON strings, which Spark reads as decimals without losing digits. Binary values become Base64.
Times become ISO 8601, in UTC if they have a zone.

**Safety properties** (tests in `test_landed_rows.py`)
- A file is decoded to its end before its first record is returned. So either all rows are returned,
  or no row is.
- A file whose rows take more than `max_content_bytes` gives no record. Memory holds the file and,
  of its rows, at most 100 (Parquet) or one block (Avro; the size of a deflated block is limited).
"""

import base64
import json
from collections.abc import Iterator, Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from itertools import chain
from math import isfinite
from typing import Any, cast
from uuid import UUID

from lakehouse.declare.landing import Landing
from lakehouse.delta.column_names import field_types
from lakehouse.land.plan.file_text import detect_format
from lakehouse.land.plan.json_members import with_present_names
from lakehouse.land.plan.json_records import has_misread_value
from lakehouse.land.plan.records import (
    MAX_RECORD_BYTES,
    SHOWN_BYTES,
    TOO_DEEP,
    UNFIT,
    Record,
    Unreadable,
    earlier_names,
)
from lakehouse.land.plan.undeclared import others_in_row
from lakehouse.land.read.parquet_and_avro import (
    BeyondPython,
    DateTexts,
    avro_dates,
    avro_rows,
    decoded_rows,
    parquet_batches,
    parquet_dates,
)

_SHOWN_CHARACTERS = 1_000
_NO_FIELDS = (
    "the row has no named fields: the top-level Avro schema is not a record. Land the file with a"
    " record schema"
)


def read_rows(data: bytes, landing: Landing, *, max_content_bytes: int) -> Iterator[Record]:
    """The rows of a Parquet or Avro file, in order, numbered from 1.

    Raises:
        Unreadable: the file is damaged or truncated, or its rows take more than
            `max_content_bytes`. It is raised before the first row.
    """
    fields = dict(field_types(landing.schema))
    dates = _decode_fully(data, landing.format, max_content_bytes)
    if landing.format == "parquet":
        batches = parquet_batches(data, max_content_bytes)
        rows = chain.from_iterable(map(decoded_rows, batches))
    else:
        rows = ((row, None) for row in avro_rows(data, max_content_bytes))
    for number, (row, problem) in enumerate(rows, start=1):
        record = _record(number, row, dates, fields, landing)
        yield record if problem is None else record._replace(problem=problem)


def _decode_fully(data: bytes, format: str, limit: int) -> DateTexts:
    """Decodes a file to its end. Returns the converter of its dates and times."""
    try:
        if format == "parquet":
            for _ in parquet_batches(data, limit):
                pass
            return parquet_dates(data)
        for _ in avro_rows(data, limit):
            pass
        return avro_dates(data)
    except Unreadable:
        raise
    except Exception as error:  # the readers raise arbitrary exceptions for damaged bytes
        content = detect_format(data)
        if content is not None and content.lower() != format:
            raise Unreadable(
                f"the file is {content}, but Landing.format is {format!r}. Land the file as "
                f"{format}, or change Landing.format"
            ) from error
        problem = f"{type(error).__name__}: {str(error)[:_SHOWN_CHARACTERS]}"
        raise Unreadable(
            f"the file cannot be read to its end as {format} ({problem}). Land an undamaged copy"
        ) from error


def _record(
    number: int, row: Any, dates: DateTexts, fields: Mapping[str, str], landing: Landing
) -> Record:
    """A row as a record: its JSON text and, if fields were renamed, the text with the new names."""
    problem = None
    undeclared = None
    event = None
    has_fields = isinstance(row, Mapping)
    try:
        if has_fields:
            plain, problem = _plain_row(cast("Mapping[str, Any]", row), dates)
            text = _text(plain)
            renamed = with_present_names(plain, text, earlier_names(landing))
            problem = problem or renamed.problem
            is_renamed = renamed.row is not plain
            event = renamed.text if is_renamed else None
            by_path = landing.new_columns == "refuse"
            undeclared = others_in_row(renamed.row, fields, by_path=by_path)
            if problem is None and has_misread_value(renamed.row, renamed.text, landing):
                problem = UNFIT
        else:
            text = _text(_plain(row, dates))
    except RecursionError:
        return Record(number, b"", TOO_DEEP)
    content = text.encode("utf-8", "surrogatepass")
    if len(content) > MAX_RECORD_BYTES:
        problem = f"the row is larger than the limit of {MAX_RECORD_BYTES} bytes"
        return Record(number, content[:SHOWN_BYTES], problem)
    if not has_fields:
        return Record(number, content, _NO_FIELDS)
    return Record(number, content, problem, undeclared, event)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _plain_row(row: Mapping[str, Any], dates: DateTexts) -> tuple[dict[str, Any], str | None]:
    """The row as JSON values, and the first problem with its dates and times."""
    plain = dict[str, Any]()
    problem = None
    for name, value in row.items():
        dates.problems.clear()  # `_plain` and `to_text` add to it
        to_text = dates.of_columns.get(name)
        converted = value if to_text is None else to_text(value)
        plain[name] = _plain(converted, dates)
        if problem is None and dates.problems:
            problem = f"{name}: {dates.problems[0]}"
    return plain, problem


def _plain(value: Any, dates: DateTexts) -> Any:
    """The value as JSON; `dates` collects the problems with its dates and times."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            if isfinite(value):
                return value
            return str(value).replace("inf", "Infinity").replace("nan", "NaN")
        case Decimal() | UUID():
            return str(value)
        case BeyondPython() | date():
            return dates.text(value)
        case time():
            return value.isoformat()
        case timedelta():
            return value // timedelta(microseconds=1)
        case bytes() | bytearray():
            return base64.b64encode(value).decode()
        case Mapping():
            return {str(_plain(name, dates)): _plain(each, dates) for name, each in value.items()}
        case _:
            return [_plain(each, dates) for each in value]
