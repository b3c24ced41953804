"""Finds, verifies and reads complete inventory reports of AWS.

**Safety properties** (tests in `vacuum/inventory/test_reports.py`)
- A report without `manifest.checksum` is incomplete and is skipped. A report with a wrong checksum,
  size or MD5 is refused, and no older report is used instead.
- Nothing is written.

Data files are CSV (gzip, no header), ORC or Parquet. Source: Amazon S3 user guide, "Amazon S3
Inventory list" (columns, URL-encoded keys in CSV, times in UTC).
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import unquote_plus

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.base.errors import Refused
from lakehouse.base.stored_objects import SCAN, StoredObject, is_folder_marker, plausible_ms
from lakehouse.base.text import count_of
from lakehouse.delta.file_columns import made_of_columns
from lakehouse.store import Store
from lakehouse.vacuum.inventory.plan.checks import (
    NEEDED_COLUMNS,
    WAIT_FOR_NEXT,
    Report,
    ReportSource,
    parse_manifest,
)

REPORTS = "_lakehouse/inventory"
_STAMP = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}-\d{2}Z")


def stamps_of(store: Store, *, after: Mapping[str, str] | None = None) -> list[tuple[str, str]]:
    """Configuration and stamp of all reports, complete or not, newest first.

    Scans that earlier versions of this program stored as reports are omitted.

    `after` maps configurations to stamps. For these configurations, only later stamps are returned.
    One request lists the configurations, and one request per configuration lists its stamps,
    regardless of the number of data files.
    """
    base = f"{REPORTS}/{store.bucket}"
    after_stamps = after or {}
    stamps = list[tuple[str, str]]()
    for name in store.folders(base):
        if name == SCAN:
            continue
        for stamp in store.folders(f"{base}/{name}", after=after_stamps.get(name, "")):
            if _STAMP.fullmatch(stamp):
                stamps.append((name, stamp))
    return sorted(stamps, key=lambda each: (each[1], each[0]), reverse=True)


def checksum_of(store: Store, configuration: str, stamp: str) -> str | None:
    """The checksum of a report's manifest; `None` while the report is incomplete."""
    name = f"{REPORTS}/{store.bucket}/{configuration}/{stamp}/manifest.checksum"
    try:
        return store.read(name).decode("ascii", "replace")
    except FileNotFoundError:
        return None


def newest_report(store: Store, *, now_ms: int, configuration: str | None = None) -> Report | None:
    """The newest complete report of `configuration` (default: any configuration), or `None`.

    Raises:
        Refused: the report cannot be trusted.
    """
    for name, stamp in stamps_of(store):
        if configuration not in (None, name):
            continue
        checksum = checksum_of(store, name, stamp)
        if checksum is not None:
            manifest, source = _manifest(store, name, stamp)
            return parse_manifest(manifest, checksum, source, now_ms=now_ms)
    return None


def _manifest(store: Store, configuration: str, stamp: str) -> tuple[bytes, ReportSource]:
    """The manifest of a report that has a checksum, and the source that it must match."""
    folder = f"{REPORTS}/{store.bucket}/{configuration}"
    name = f"{folder}/{stamp}/manifest.json"
    source = ReportSource(
        name=f"{configuration}/{stamp}",
        bucket=store.bucket,
        folder=f"{store.prefix}{folder}/data",
    )
    problem = f"inventory report {name}: the manifest is missing, although its checksum exists"
    return _read(store, name, problem), source


def read_report(store: Store, report: Report) -> Iterator[StoredObject]:
    """Every row of a report below the store's root. One data file at a time is in memory.

    Raises:
        Refused: a data file does not match the manifest, or cannot be trusted.
    """
    for where, data in _verified(store, report):
        for each in stored_objects(report, data, where=where, below=store.prefix):
            if each.key.startswith(store.prefix):
                yield each


def _verified(store: Store, report: Report) -> Iterator[tuple[str, bytes]]:
    """The verified data files, each with its name for error messages."""
    for part in report.files:
        where = f"inventory report {report.name}: {part.key}"
        problem = f"{where} is named in the manifest, but does not exist"
        data = _read(store, part.key.removeprefix(store.prefix), problem)
        if len(data) != part.size_bytes:
            raise Refused(
                f"{where} has {len(data)} bytes, but {part.size_bytes} according to the manifest. "
                f"{WAIT_FOR_NEXT}"
            )
        md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
        if md5 != part.md5:
            raise Refused(
                f"{where} has MD5 {md5}, but {part.md5} according to the manifest. {WAIT_FOR_NEXT}"
            )
        yield where, data


def _read(store: Store, name: str, problem: str) -> bytes:
    try:
        return store.read(name)
    except FileNotFoundError as error:
        raise Refused(f"{problem}. {WAIT_FOR_NEXT}") from error


_BATCH_ROWS = 65_536
# Columns that a report may lack: the field of `StoredObject`, and the report's column.
_OPTIONAL = {
    "storage_class": "storage_class",
    "archive_tier": "intelligent_tiering_access_tier",
    "is_latest": "is_latest",
    "is_delete_marker": "is_delete_marker",
    "version_id": "version_id",
}
_FLAGS = ("is_latest", "is_delete_marker")


def stored_objects(
    report: Report, data: bytes, *, where: str, below: str = ""
) -> Iterator[StoredObject]:
    """Every row of a data file. `where` names the file in messages.

    Rows whose key does not begin with `below` may be omitted (`_may_contain`).

    Raises:
        Refused: the file or a row cannot be read, a row belongs to another bucket, or none of the
            rows that were read has a plausible time.
    """
    row_count = 0
    plausible_count = 0
    for columns in _column_batches(report, data, where=where, below=below):
        other_buckets = set(columns["bucket"]) - {report.bucket}
        if other_buckets:
            raise Refused(
                f"{where} has rows of bucket {min(other_buckets)!r}. Use a report that lists only "
                f"bucket {report.bucket!r}"
            )
        times = [plausible_ms(ms, now_ms=report.created_ms) for ms in columns["last_modified_date"]]
        row_count += len(times)
        plausible_count += sum(ms is not None for ms in times)
        yield from _objects(columns, times, where=where)
    if row_count and not plausible_count:
        raise Refused(
            f"{where}: none of the file's {count_of(row_count, 'modification time')} is between "
            "2006 and the report's own time. Times may be in seconds; use milliseconds"
        )


def _column_batches(
    report: Report, data: bytes, *, where: str, below: str
) -> Iterator[Mapping[str, Sequence[Any]]]:
    """The report's columns that we read, in batches of at most 65,536 rows.

    Values are Python objects, and the objects' keys are decoded. Parquet row groups that contain no
    key with the prefix `below` may be skipped. Raises `Refused` if the file cannot be read.
    """
    readers = {"CSV": _csv, "ORC": _orc, "Parquet": partial(_parquet, below=below)}
    read = readers[report.file_format]
    read_columns = (*NEEDED_COLUMNS, *_OPTIONAL.values())
    names = [name for name in report.columns if name in read_columns]
    try:
        for batch in read(report, data, names):
            columns = {
                name.lower(): _values(name.lower(), column)
                for name, column in zip(batch.schema.names, batch.columns, strict=True)
            }
            missing = [name for name in NEEDED_COLUMNS if name not in columns]
            if missing:
                raise Refused(
                    f"{where} has no column {' and no '.join(missing)}, although the manifest "
                    f"names such a column. {WAIT_FOR_NEXT}"
                )
            if report.file_format == "CSV":
                # Keys are decoded only once, because an object's name may itself contain escapes.
                columns["key"] = [
                    key and unquote_plus(key, errors="strict") for key in columns["key"]
                ]
            yield columns
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise Refused(
            f"{where} cannot be read as {report.file_format} ({type(error).__name__}: {error}). "
            f"{WAIT_FOR_NEXT}"
        ) from error


def _parquet(
    _report: Report, data: bytes, names: Sequence[str], *, below: str
) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(pa.BufferReader(data)) as file:
        groups = [
            index
            for index in range(file.num_row_groups)
            if not below or _may_contain(file.metadata.row_group(index), below)
        ]
        file_names = [name for name in file.schema_arrow.names if name.lower() in names]
        yield from file.iter_batches(_BATCH_ROWS, row_groups=groups, columns=file_names)


def _may_contain(group: pq.RowGroupMetaData, below: str) -> bool:
    """Whether a row group may contain keys that begin with `below`, according to its statistics.

    Only bounds in ASCII are used, because old writers compare bytes as signed numbers, which orders
    other bytes differently. The answer is also true if the row group has null keys, or no bounds.
    """
    for index in range(group.num_columns):
        column = group.column(index)
        if column.path_in_schema.lower() != "key":
            continue
        statistics = column.statistics
        if statistics is None or not statistics.has_min_max or statistics.null_count:
            return True
        least = statistics.min_raw
        most = statistics.max_raw
        if not (isinstance(least, bytes) and isinstance(most, bytes)):
            return True
        prefix = below.encode()
        if not (least + most + prefix).isascii():
            return True
        # Keys with the prefix are at least the prefix. The beginning of `least` is greater than
        # the prefix only if `least` is greater than all of these keys.
        return least[: len(prefix)] <= prefix <= most
    return True


def _orc(_report: Report, data: bytes, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    from pyarrow import orc

    file = orc.ORCFile(pa.BufferReader(data))
    file_names = [name for name in file.schema.names if name.lower() in names]
    for stripe in range(file.nstripes):
        table = pa.Table.from_batches([file.read_stripe(stripe, columns=file_names)])
        yield from table.to_batches(_BATCH_ROWS)


def _csv(report: Report, data: bytes, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    from pyarrow import csv

    file_names = list(report.columns)
    with pa.CompressedInputStream(pa.BufferReader(data), "gzip") as text:
        if not text.read(1):  # Arrow refuses a CSV file without rows
            return
    with (
        pa.CompressedInputStream(pa.BufferReader(data), "gzip") as text,
        csv.open_csv(
            text,
            read_options=csv.ReadOptions(column_names=file_names, use_threads=False),
            convert_options=csv.ConvertOptions(
                column_types=dict.fromkeys(file_names, pa.string()),
                include_columns=list(names),
                strings_can_be_null=True,
                null_values=[""],
            ),
        ) as reader,
    ):
        yield from reader


def _values(name: str, column: pa.Array) -> list[Any]:
    """A column's values, with the same Python types for all formats.

    An empty string becomes `None`, times become milliseconds, and flags become booleans.
    """
    if name == "last_modified_date":
        return _milliseconds(column).to_pylist()
    if name == "size":
        return column.cast(pa.int64()).to_pylist()
    if name in _FLAGS:
        return column.cast(pa.bool_()).to_pylist()
    return [value or None for value in column.cast(pa.string()).to_pylist()]


def _milliseconds(column: pa.Array) -> pa.Array:
    """Milliseconds since 1970 UTC.

    A time without a time zone is in UTC. A number is already in milliseconds.
    """
    if pa.types.is_integer(column.type):
        return column.cast(pa.int64())
    if pa.types.is_string(column.type):
        column = column.cast(pa.timestamp("ms", tz="UTC"))
    return column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False).cast(pa.int64())


def _objects(
    columns: Mapping[str, Sequence[Any]], times: Sequence[int | None], *, where: str
) -> Sequence[StoredObject]:
    keys = columns["key"]
    sizes = columns["size"]
    optional = {name: columns.get(column, [None] * len(keys)) for name, column in _OPTIONAL.items()}
    for key, size, is_marker in zip(keys, sizes, optional["is_delete_marker"], strict=True):
        if key is None or (size is None and not is_marker) or (size or 0) < 0:
            raise Refused(
                f"{where}: the row of key {key!r} has size {size}. Every row needs a key and, "
                "unless it is a delete marker, a size of at least 0"
            )
    known_sizes = [size or 0 for size in sizes]
    return made_of_columns(
        StoredObject,
        len(keys),
        bucket=columns["bucket"],
        key=keys,
        size_bytes=known_sizes,
        modified_ms=times,
        is_dir=map(is_folder_marker, keys, known_sizes),
        **optional,
    )
