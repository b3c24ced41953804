"""Reads landed files, several in parallel, and splits them into records.

So rows of all formats are staged, parsed, counted and rejected in the same way. Decimals become
JSON strings, which Spark reads as decimals without losing digits. Binary values become Base64.
Times become ISO 8601, in UTC if they have a zone.

**Safety properties** (tests in `test_rows.py`)
- A file is decoded to its end before its first record is returned. So either all rows are returned,
  or no row is.
- A file whose rows take more than `max_content_bytes` gives no record. Memory holds the file and,
  of its rows, at most 100 (Parquet) or one block (Avro; the size of a deflated block is limited).
"""

import base64
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date, time, timedelta
from decimal import Decimal
from functools import partial
from itertools import chain
from math import isfinite
from typing import Any, NamedTuple, cast
from uuid import UUID

import pyarrow as pa

from lakehouse.base.errors import Refused
from lakehouse.declare.landing import Landing
from lakehouse.delta.columns import field_types
from lakehouse.land.plan.batches import Batch, LandedFile
from lakehouse.land.plan.file_text import GZIP, Compression, detect_format, read_records
from lakehouse.land.plan.json_members import with_present_names
from lakehouse.land.plan.json_records import has_misread_value
from lakehouse.land.plan.records import (
    MAX_RECORD_BYTES,
    MIB,
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
from lakehouse.store import Store

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


_READ_AT_ONCE_BYTES = 32 * MIB
_READ_AT_ONCE_FILES = 256
_READ_ALONE_AT_ONCE = 16
# A file may unpack to this multiple of the size limit of landed files.
UNPACKED_TIMES = 4
_CHUNK_BYTES = 4 * MIB


def _unzstd(data: bytes) -> Iterator[bytes]:
    """Decompresses zstd bytes of one or more frames."""
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                yield chunk
    except pa.ArrowException as error:
        raise OSError(str(error)) from error


ZSTD = Compression("zstd", _unzstd)
_BY_CONTENT = {"gzip": GZIP, "zstd": ZSTD}
_BY_ENDING = {"gz": GZIP, "zst": ZSTD}


class Content(NamedTuple):
    """A landed file and its bytes, which are `None` if it is missing or archived.

    `archived_in` is the storage class of an archived file.
    """

    file: LandedFile
    data: bytes | None
    archived_in: str | None = None


def read_contents(
    store: Store, batch: Batch, *, stops_at_archived: bool
) -> Iterator[list[Content]]:
    """The contents of a batch's files in order, in lists of bounded size.

    If a file of a list is missing or archived, each file of the list is read by itself.

    Raises:
        Refused: a file is archived, and `stops_at_archived` is set; or a permission is missing.
    """
    for group in _read_at_once(batch.files):
        try:
            data = [*store.read_many([f"{batch.prefix}{file.name}" for file in group])]
        except FileNotFoundError:
            pass
        except Refused:
            if stops_at_archived:
                raise
        else:
            yield [*map(Content, group, data)]
            continue
        read_alone = partial(_read_alone, store, batch.prefix, stops_at_archived)
        with ThreadPoolExecutor(max_workers=_READ_ALONE_AT_ONCE) as readers:
            yield [*readers.map(read_alone, group)]


def restore_first(store: Store, path: str, storage_class: str) -> str:
    """The reason why an archived file is not read, and how to restore it."""
    key = f"{store.prefix}{path}"
    return (
        f"it is archived in storage class {storage_class}, in which no object can be read. Use "
        f"`aws s3api restore-object --bucket {store.bucket} --key {shlex.quote(key)} "
        "--restore-request Days=7`, then `lakehouse quarantine retry`"
    )


def landed_records(
    name: str, data: bytes, landing: Landing, until_byte: int | None = None
) -> Iterator[Record]:
    """The records of a landed file. A text file is read as if its text ended at `until_byte`."""
    limit = UNPACKED_TIMES * landing.max_file_bytes
    if landing.format in ("json", "csv"):
        return read_records(
            data,
            landing,
            compression=compression_of(name, data),
            max_content_bytes=limit,
            until_byte=until_byte,
        )
    # Imported here, because only Parquet and Avro need it.

    return read_rows(data, landing, max_content_bytes=limit)


def compression_of(name: str, data: bytes) -> Compression | None:
    """The compression of a file, by its content or else by its name."""
    by_content = _BY_CONTENT.get(detect_format(data) or "")
    return by_content or _BY_ENDING.get(name.rpartition(".")[2].lower())


def _read_at_once(files: Sequence[LandedFile]) -> Iterator[list[LandedFile]]:
    """Groups the files up to a bounded size; a file above that size is alone in its group."""
    group = list[LandedFile]()
    size_bytes = 0
    for file in files:
        is_full = len(group) == _READ_AT_ONCE_FILES
        if group and (is_full or size_bytes + file.size_bytes > _READ_AT_ONCE_BYTES):
            yield group
            group = []
            size_bytes = 0
        group.append(file)
        size_bytes += file.size_bytes
    if group:
        yield group


def _read_alone(store: Store, prefix: str, stops_at_archived: bool, file: LandedFile) -> Content:
    path = f"{prefix}{file.name}"
    try:
        return Content(file, store.read(path))
    except FileNotFoundError:
        return Content(file, None)
    except Refused:
        storage_class = None if stops_at_archived else store.archived_in(path)
        if storage_class is None:
            raise
        return Content(file, None, storage_class)
