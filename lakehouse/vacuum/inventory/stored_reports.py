"""Finds, verifies and reads complete inventory reports of AWS.

**Safety properties** (tests in `vacuum/inventory/test_reports.py`)
- A report without `manifest.checksum` is incomplete and is skipped. A report with a wrong checksum,
  size or MD5 is refused, and no older report is used instead.
- Nothing is written.

Data files are CSV (gzip, no header), ORC or Parquet. Source: Amazon S3 user guide, "Amazon S3
Inventory list" (columns, URL-encoded keys in CSV, times in UTC), "Locating your inventory list"
(manifest.json, manifest.checksum).
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any
from urllib.parse import unquote_plus

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.base.errors import Refused
from lakehouse.base.frozen import frozen
from lakehouse.base.stored_objects import SCAN, StoredObject, is_folder_marker, plausible_ms
from lakehouse.base.text import count_of, either
from lakehouse.delta.snapshot import made_of_columns
from lakehouse.store import Store

REPORTS = "_lakehouse/inventory"
# What to do about a damaged report.
WAIT_FOR_NEXT = (
    "Wait for the next report, or use lakehouse inventory load --configuration lakehouse-scan"
)
NEEDED_COLUMNS = ("bucket", "key", "size", "last_modified_date")
# A report is refused if its time is more than this ahead of our clock, because it would count as
# fresh for too long. Clocks that are synchronized with a time server differ only by seconds.
_AHEAD_MS = 300_000
# Matches between the words of a name in CSV: LastModifiedDate -> Last_Modified_Date.
_WORD_BOUNDARY = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


@frozen
class DataPart:
    """One data file of a report: its key in the destination bucket, its size and its MD5."""

    key: str
    size_bytes: int
    md5: str


@frozen
class Report:
    """A complete report, named `<configuration>/<stamp>`. `bucket` is the bucket that it lists.

    `columns` are those of CSV, which has no header, spelled as in ORC and Parquet
    (`last_modified_date`).
    `created_ms` is the time at which the listing began. Objects written later may be missing.
    """

    name: str
    bucket: str
    created_ms: int
    file_format: str
    columns: tuple[str, ...]
    files: tuple[DataPart, ...]


def parse_manifest(
    manifest: bytes, checksum: str, *, name: str, bucket: str, folder: str, now_ms: int
) -> Report:
    """The report `name` of `bucket` that `manifest` describes, with data files in `folder`.

    `checksum` is the content of `manifest.checksum`.

    Raises:
        Refused: the manifest is damaged or its checksum is wrong; or the report lists another
            bucket, has an unknown format or lacks a needed column; or it names no data files, or a
            data file outside the folder; or its time is more than five minutes in the future, or
            implausible (for example, in seconds instead of milliseconds).
    """
    where = f"inventory report {name}"
    actual = hashlib.md5(manifest, usedforsecurity=False).hexdigest()
    if checksum.strip() != actual:
        raise Refused(
            f"{where}: manifest.checksum contains {checksum.strip()[:40]!r}, but manifest.json has "
            f"MD5 {actual}. {WAIT_FOR_NEXT}"
        )
    try:
        report = _report(json.loads(manifest), name)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refused(
            f"{where}: manifest.json cannot be parsed ({type(error).__name__}: {error}). "
            f"{WAIT_FOR_NEXT}"
        ) from error
    if problem := _problem_of(report, bucket, folder, now_ms):
        raise Refused(f"{where}: {problem}")
    return report


def _report(document: Any, name: str) -> Report:
    file_format = str(document["fileFormat"])
    columns = str(document["fileSchema"]).split(",") if file_format == "CSV" else ()
    files = [
        DataPart(key=str(file["key"]), size_bytes=int(file["size"]), md5=str(file["MD5checksum"]))
        for file in document["files"]
    ]
    return Report(
        name=name,
        bucket=str(document["sourceBucket"]),
        created_ms=int(document["creationTimestamp"]),
        file_format=file_format,
        columns=tuple(_WORD_BOUNDARY.sub("_", name.strip()).lower() for name in columns),
        files=tuple(files),
    )


def _problem_of(report: Report, bucket: str, folder: str, now_ms: int) -> str:
    """Why the report cannot be used, and what to do; empty if there is no problem.

    All data files must be in `folder`.
    """
    if report.bucket != bucket:
        return f"the report lists bucket {report.bucket!r}. Use a report of bucket {bucket!r}"
    if plausible_ms(report.created_ms, now_ms=now_ms) is None:
        return (
            f"creationTimestamp {report.created_ms} is not a plausible time in milliseconds (the "
            f"current time is {now_ms}), but may be in seconds or microseconds. {WAIT_FOR_NEXT}"
        )
    if report.created_ms > now_ms + _AHEAD_MS:
        ahead_minutes = (report.created_ms - now_ms) / 60_000
        return (
            f"the report's time is {ahead_minutes:.0f} min ahead of this machine's clock (limit "
            f"{_AHEAD_MS // 60_000} min). Synchronize this clock, and the clock of the program "
            "that writes the reports, with a time server"
        )
    if report.file_format not in _READERS:
        return f"the format is {report.file_format!r}. Use {either([*_READERS])}"
    if not report.files:
        return (
            "the manifest names no data files, although the bucket contains at least this report. "
            f"{WAIT_FOR_NEXT}"
        )
    for file in report.files:
        names = file.key.removeprefix(f"{folder}/").split("/")
        is_below = file.key.startswith(f"{folder}/") and {"", ".", ".."}.isdisjoint(names)
        if not is_below:
            return (
                f"the data file {file.key!r} is not a plain path below {folder}/. {WAIT_FOR_NEXT}"
            )
    return ""


_STAMP = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}-\d{2}Z")


def report_names(store: Store) -> list[str]:
    """The names (`<configuration>/<stamp>`) of all reports, complete or not, newest first.

    Scans that earlier versions of this program stored as reports are omitted. One request lists the
    configurations, and one request per configuration lists its stamps, regardless of the number of
    data files.
    """
    base = f"{REPORTS}/{store.bucket}"
    names = [
        f"{configuration}/{stamp}"
        for configuration in store.folders(base)
        if configuration != SCAN
        for stamp in store.folders(f"{base}/{configuration}")
        if _STAMP.fullmatch(stamp)
    ]
    return sorted(names, key=lambda name: name.partition("/")[::-1], reverse=True)


def newest_complete(store: Store, *, configuration: str | None = None) -> tuple[str, str] | None:
    """Name and manifest checksum of the newest complete report, of `configuration` if given."""
    for name in report_names(store):
        if configuration in (None, name.partition("/")[0]):
            with suppress(FileNotFoundError):  # the report is incomplete
                checksum = store.read(f"{REPORTS}/{store.bucket}/{name}/manifest.checksum")
                return name, checksum.decode("ascii", "replace")
    return None


def newest_report(store: Store, *, now_ms: int, configuration: str | None = None) -> Report | None:
    """The newest complete report of `configuration` (default: any configuration), or `None`.

    Raises:
        Refused: the report cannot be trusted.
    """
    complete = newest_complete(store, configuration=configuration)
    if complete is None:
        return None
    name, checksum = complete
    base = f"{REPORTS}/{store.bucket}"
    file = f"{base}/{name}/manifest.json"
    problem = f"inventory report {file}: the manifest is missing, although its checksum exists"
    return parse_manifest(
        _read(store, file, problem),
        checksum,
        name=name,
        bucket=store.bucket,
        folder=f"{store.prefix}{base}/{name.partition('/')[0]}/data",
        now_ms=now_ms,
    )


def read_report(store: Store, report: Report) -> Iterator[StoredObject]:
    """Every row of a report below the store's root. One data file at a time is in memory.

    Raises:
        Refused: a data file does not match the manifest, or cannot be trusted.
    """
    for where, data in _verified(store, report):
        yield from _stored_objects(report, data, where, store.prefix)


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
# The types of columns that hold neither times nor strings.
_TYPES = {"size": pa.int64(), "is_latest": pa.bool_(), "is_delete_marker": pa.bool_()}


def _stored_objects(report: Report, data: bytes, where: str, below: str) -> Iterator[StoredObject]:
    """The rows of a data file whose key begins with `below`. `where` names the file in messages.

    Raises:
        Refused: the file or a row cannot be read, a row belongs to another bucket, or none of the
            rows has a plausible time.
    """
    row_count = 0
    plausible_count = 0
    for columns in _column_batches(report, data, where, below):
        other_buckets = set(columns["bucket"]) - {report.bucket}
        if other_buckets:
            raise Refused(
                f"{where} has rows of bucket {min(other_buckets)!r}. Use a report that lists only "
                f"bucket {report.bucket!r}"
            )
        times = [plausible_ms(ms, now_ms=report.created_ms) for ms in columns["last_modified_date"]]
        row_count += len(times)
        plausible_count += sum(ms is not None for ms in times)
        keys = columns["key"]
        sizes = columns["size"]
        unknown = [None] * len(keys)
        optional = {name: columns.get(column, unknown) for name, column in _OPTIONAL.items()}
        for key, size, is_marker in zip(keys, sizes, optional["is_delete_marker"], strict=True):
            if key is None or (size is None and not is_marker) or (size or 0) < 0:
                raise Refused(
                    f"{where}: the row of key {key!r} has size {size}. Every row needs a key and, "
                    "unless it is a delete marker, a size of at least 0"
                )
        known_sizes = [size or 0 for size in sizes]
        yield from made_of_columns(
            StoredObject,
            len(keys),
            bucket=columns["bucket"],
            key=keys,
            size_bytes=known_sizes,
            modified_ms=times,
            is_dir=map(is_folder_marker, keys, known_sizes),
            **optional,
        )
    if row_count and not plausible_count:
        raise Refused(
            f"{where}: none of the file's {count_of(row_count, 'modification time')} is between "
            "2006 and the report's own time. Times may be in seconds; use milliseconds"
        )


def _column_batches(
    report: Report, data: bytes, where: str, below: str
) -> Iterator[Mapping[str, Sequence[Any]]]:
    """The report's columns that we read, in batches of at most 65,536 rows.

    Values are Python objects, and the objects' keys are decoded. Rows whose key does not begin with
    `below` are omitted. Raises `Refused` if the file cannot be read.
    """
    pc: Any = import_module("pyarrow.compute")  # its functions have no types
    try:
        for batch in _READERS[report.file_format](report, data):
            arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
            missing = [name for name in NEEDED_COLUMNS if name not in arrays]
            if missing:
                raise Refused(
                    f"{where} has no column {' and no '.join(missing)}. Add Size and "
                    "LastModifiedDate to the inventory configuration"
                )
            if report.file_format == "CSV":
                # Keys are decoded only once, because an object's name may itself contain escapes.
                keys = arrays["key"].to_pylist()
                decoded = [key and unquote_plus(key, errors="strict") for key in keys]
                arrays["key"] = pa.array(decoded, pa.string())
            is_below = pc.starts_with(arrays["key"].cast(pa.string()), below)
            is_kept = pc.fill_null(is_below, True)
            arrays = {name: column.filter(is_kept) for name, column in arrays.items()}
            yield {name: _values(name, column) for name, column in arrays.items()}
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise Refused(
            f"{where} cannot be read as {report.file_format} ({type(error).__name__}: {error}). "
            f"{WAIT_FOR_NEXT}"
        ) from error


def _read_among(names: Sequence[str]) -> list[str]:
    """The columns that we read."""
    return [name for name in names if name in (*NEEDED_COLUMNS, *_OPTIONAL.values())]


def _parquet(_report: Report, data: bytes) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(pa.BufferReader(data)) as file:
        yield from file.iter_batches(_BATCH_ROWS, columns=_read_among(file.schema_arrow.names))


def _orc(_report: Report, data: bytes) -> Iterator[pa.RecordBatch]:
    from pyarrow import orc

    file = orc.ORCFile(pa.BufferReader(data))
    file_names = _read_among(file.schema.names)
    for stripe in range(file.nstripes):
        table = pa.Table.from_batches([file.read_stripe(stripe, columns=file_names)])
        yield from table.to_batches(_BATCH_ROWS)


def _csv(report: Report, data: bytes) -> Iterator[pa.RecordBatch]:
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
                include_columns=_read_among(file_names),
                strings_can_be_null=True,
                null_values=[""],
            ),
        ) as reader,
    ):
        yield from reader


_READERS = {"CSV": _csv, "ORC": _orc, "Parquet": _parquet}


def _values(name: str, column: pa.Array) -> list[Any]:
    """A column's values, with the same Python types for all formats.

    An empty string becomes `None`, flags become booleans, and times become milliseconds since 1970
    UTC. A time without a time zone is in UTC. A number is already in milliseconds.
    """
    if name == "last_modified_date":
        times = column.cast(pa.timestamp("ms", tz="UTC"), safe=False)
        return times.cast(pa.int64()).to_pylist()
    if name in _TYPES:
        return column.cast(_TYPES[name]).to_pylist()
    return [value or None for value in column.cast(pa.string()).to_pylist()]
