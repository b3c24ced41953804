"""Rows of landed Parquet and Avro files as records, as if each were a line of a JSON file.

This way, all formats are staged, parsed, counted and refused alike. Numbers keep their digits:
decimals become texts, which Spark reads as decimals. Binary values become Base64. Times become ISO
8601, in UTC if they have a zone.

**Safety properties** (tests in `test_landed_rows.py`)
- A file is decoded to its end before its first record is returned. So either all rows are returned,
  or no row is.
- A file that decodes to more bytes than the limit gives no record. Only the file, and 100 Parquet
  rows or one Avro block of bounded size, are in memory.
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

from lakehouse.core.changes.json_members import with_present_names
from lakehouse.core.declaration.column_names import field_types
from lakehouse.core.declaration.landing import Landing
from lakehouse.core.ingest.file_text import detect_format
from lakehouse.core.ingest.json_values import has_misread_value
from lakehouse.core.ingest.records import (
    MAX_RECORD_BYTES,
    TOO_DEEP,
    UNFIT,
    Record,
    Unreadable,
    earlier_names,
)
from lakehouse.core.ingest.undeclared import others_in_row
from lakehouse.engine.ingest.avro_rows import avro_dates, avro_rows, avro_types
from lakehouse.engine.ingest.calendars import BeyondPython, DateTexts
from lakehouse.engine.ingest.parquet_rows import parquet_batches, parquet_dates, parquet_types

_SHOWN = 1_000


def read_rows(data: bytes, landing: Landing, *, max_content_bytes: int) -> Iterator[Record]:
    """The rows of a Parquet or Avro file, in order, numbered from 1.

    Raises:
        Unreadable: the file is damaged or truncated, or its rows take more than
            `max_content_bytes`. It is raised before the first row.
    """
    fields = dict(field_types(landing.schema))
    dates = _checked(data, landing.format, max_content_bytes)
    if landing.format == "parquet":
        batches = parquet_batches(data, max_content_bytes)
        rows = chain.from_iterable(batch.to_pylist(maps_as_pydicts="strict") for batch in batches)
    else:
        rows = avro_rows(data, max_content_bytes)
    for number, row in enumerate(rows, start=1):
        yield _record(number, row, dates, fields, landing)


def file_types(data: bytes, format: str) -> dict[str, str]:
    """The columns of a Parquet or Avro file, with SQL types that can store their values.

    Empty for a damaged file; `read_rows` reports its error.
    """
    try:
        return parquet_types(data) if format == "parquet" else avro_types(data)
    except Exception:  # for damaged bytes the readers may raise anything
        return {}


def _checked(data: bytes, format: str, limit: int) -> DateTexts:
    """Decodes a file to its end; returns the converter of its dates and times."""
    is_parquet = format == "parquet"
    try:
        for _ in (parquet_batches if is_parquet else avro_rows)(data, limit):
            pass
        return parquet_dates(data) if is_parquet else avro_dates(data)
    except Unreadable:
        raise
    except Exception as error:  # as in `file_types`
        content = detect_format(data)
        is_other = content is not None and content.lower() != format
        problem = f"{type(error).__name__}: {str(error)[:_SHOWN]}"
        if is_other:
            problem = f"it is {content}"
        raise Unreadable(
            f"the file cannot be read to its end as {format} ({problem}). Land the file again"
        ) from error


def _record(
    number: int, row: Any, dates: DateTexts, fields: Mapping[str, str], landing: Landing
) -> Record:
    problem = None
    others = None
    event = None
    is_record = isinstance(row, Mapping)
    try:
        if is_record:
            plain, problem = _plain_row(cast("Mapping[str, Any]", row), dates)
            text = _text(plain)
            present = with_present_names(plain, text, earlier_names(landing))
            problem = problem or present.problem
            event = None if present.row is plain else present.text
            by_path = landing.new_columns == "refuse"
            others = others_in_row(present.row, fields, by_path=by_path)
            if problem is None and has_misread_value(present.row, present.text, landing):
                problem = UNFIT
        else:
            text = _text(_plain(row, dates))
    except RecursionError:
        return Record(number, b"", TOO_DEEP)
    content = text.encode("utf-8", "surrogatepass")
    if len(content) > MAX_RECORD_BYTES:
        problem = f"the row has more than {MAX_RECORD_BYTES} bytes, the limit"
        return Record(number, content[:_SHOWN], problem)
    if not is_record:
        return Record(number, content, "the row is not a record with fields")
    return Record(number, content, problem, others, event)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _plain_row(row: Mapping[str, Any], dates: DateTexts) -> tuple[dict[str, Any], str | None]:
    """The row as JSON values, and the first problem with its dates and times."""
    plain = dict[str, Any]()
    problem = None
    for name, value in row.items():
        dates.problems.clear()
        text = dates.of_columns.get(name)
        plain[name] = _plain(value if text is None else text(value), dates)
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
