"""Scans storage: lists it once, and writes a report in the format of AWS S3 Inventory.

1. The store is listed. Rows are written in batches to Parquet files below `data/`; only the current
   file is in memory.
2. `manifest.json` is written, then the symlink file, and last `manifest.checksum`.
3. Our expired reports are deleted, together with old leftovers of killed scans.

**Safety properties**
- Nothing is replaced: data files have new names, and a manifest is written only if its name is free
  (`engine/inventory/test_reports.py`).
- A killed scan leaves no `manifest.checksum`, so no reader mistakes its files for a report
  (`engine/inventory/test_reports.py`).
- `core.inventory.expired_scans` selects the files to delete. These files belong to our own
  configuration, but never to the newest complete report (`core/inventory/test_checks.py`).
"""

import hashlib
import json
from array import array
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.lib import StringBuilder

from lakehouse.core.errors import LakehouseError, Transient
from lakehouse.core.inventory.expired_scans import expired
from lakehouse.core.inventory.objects import StoredObject
from lakehouse.core.inventory.report_manifest import DataPart
from lakehouse.core.units import MINUTE_MS
from lakehouse.engine.inventory.stored_reports import REPORTS, SCAN, checksum_of, stamps_of
from lakehouse.engine.store import LOCAL, Store

BATCH_ROWS = 10_000
FILE_ROWS = 500_000
# The number of minutes whose names are tried for a report.
_TRIES = 60
_SCHEMA = pa.schema(
    [
        pa.field("bucket", pa.string(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("size", pa.int64()),
        pa.field("last_modified_date", pa.timestamp("ms", tz="UTC")),
        pa.field("storage_class", pa.string()),
        pa.field("checksum_algorithm", pa.string()),
    ]
)
# `_SCHEMA`, as AWS writes it in manifests. The two must agree.
_FILE_SCHEMA = (
    "message s3.inventory {  required binary bucket (UTF8);  required binary key (UTF8);  optional "
    "int64 size;"
    "  optional int64 last_modified_date (TIMESTAMP_MILLIS);  optional binary storage_class (UTF8);"
    "  optional binary checksum_algorithm (UTF8);}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scanned:
    """A finished report: the name of its manifest in the store, its data files and its totals."""

    manifest_name: str
    files: tuple[DataPart, ...]
    object_count: int
    size_bytes: int


def scan(store: Store, *, now_ms: int, progress: Callable[[int], None] | None = None) -> Scanned:
    """Writes a complete report of everything below the store's root, including older reports.

    `progress` is called with the number of objects so far. `now_ms` is the time at which the
    listing begins. The report is named after this minute, or after the next minute whose name is
    free.

    Raises:
        Transient: none of the next `_TRIES` names is free.
    """
    folder = f"{REPORTS}/{store.bucket}/{SCAN}"
    files = RowFiles(store, f"{folder}/data", _SCHEMA)
    objects = store.walk("")
    object_count = 0
    size_bytes = 0
    while batch := list(islice(objects, BATCH_ROWS)):
        files.add(_rows(batch))
        object_count += len(batch)
        size_bytes += sum(each.size_bytes for each in batch)
        if progress:
            progress(object_count)
    parts = files.finish()
    name = _publish(store, folder, parts, began_ms=now_ms)
    # The report is complete even if this deletion fails. The next scan then tries again.
    with suppress(LakehouseError):
        _remove_expired(store, folder, now_ms=now_ms)
    return Scanned(
        manifest_name=name, files=parts, object_count=object_count, size_bytes=size_bytes
    )


def _rows(batch: Sequence[StoredObject]) -> pa.RecordBatch:
    arrays = [
        text_column(each.bucket for each in batch),
        text_column(each.key for each in batch),
        number_column(pa.int64(), (each.size_bytes for each in batch)),
        number_column(pa.timestamp("ms", tz="UTC"), (each.modified_ms or 0 for each in batch)),
        text_column(each.storage_class for each in batch),
        text_column(each.checksum_algorithm for each in batch),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def _publish(store: Store, folder: str, files: Sequence[DataPart], *, began_ms: int) -> str:
    """Writes manifest, symlink and checksum, in this order; returns the manifest's name."""
    document = {
        "sourceBucket": store.bucket,
        "destinationBucket": f"arn:aws:s3:::{store.bucket}",
        "version": "2016-11-30",
        "creationTimestamp": str(began_ms),
        "fileFormat": "Parquet",
        "fileSchema": _FILE_SCHEMA,
        "files": [
            {"key": file.key, "size": file.size_bytes, "MD5checksum": file.md5} for file in files
        ],
    }
    data = json.dumps(document, indent=2).encode()
    for minutes_late in range(_TRIES):
        began = datetime.fromtimestamp((began_ms + minutes_late * MINUTE_MS) / 1_000, tz=UTC)
        name = f"{folder}/{began:%Y-%m-%dT%H-%MZ}/manifest.json"
        if not store.put_if_absent(name, data):
            continue
        root = "" if store.bucket == LOCAL else f"s3://{store.bucket}/"
        links = "\n".join(f"{root}{file.key}" for file in files)
        store.put(f"{folder}/hive/dt={began:%Y-%m-%d-%H-%M}/symlink.txt", links.encode())
        checksum = hashlib.md5(data, usedforsecurity=False).hexdigest()
        store.put(f"{folder}/{began:%Y-%m-%dT%H-%MZ}/manifest.checksum", f"{checksum}\n".encode())
        return name
    raise Transient(
        f"inventory scan: the next {_TRIES} names for a report of {store.bucket} are in use by "
        "earlier scans. Try again in a few minutes"
    )


def _remove_expired(store: Store, folder: str, *, now_ms: int) -> None:
    """Deletes our expired reports, and old leftovers of killed scans.

    Their checksums are deleted first, because readers ignore a report without a checksum.
    """
    own_stamps = [stamp for name, stamp in stamps_of(store) if name == SCAN]
    # Unlike `store.list`, `store.walk` includes leftovers of killed writes.
    files = [
        (each.key.removeprefix(f"{store.prefix}{folder}/"), each.modified_ms or now_ms)
        for each in store.walk(folder)
    ]
    complete_stamps = (stamp for stamp in own_stamps if checksum_of(store, SCAN, stamp))
    newest = next(complete_stamps, None)
    names = [f"{folder}/{name}" for name in expired(files, newest=newest, now_ms=now_ms)]
    store.delete([name for name in names if name.endswith("manifest.checksum")])
    store.delete([name for name in names if not name.endswith("manifest.checksum")])


class RowFiles:
    """Writes rows to new Parquet files in a folder. At most one file is in memory at a time."""

    def __init__(self, store: Store, folder: str, schema: pa.Schema) -> None:
        self._store = store
        self._folder = folder
        self._schema = schema
        self._files: list[DataPart] = []
        self._begin_file()

    def add(self, batch: pa.RecordBatch) -> None:
        """Appends rows, and puts the current file into the store when it is full."""
        self._writer.write_batch(batch)
        self._rows += batch.num_rows
        if self._rows >= FILE_ROWS:
            self._finish_file()
            self._begin_file()

    def finish(self) -> tuple[DataPart, ...]:
        """Puts the last file into the store; returns all files (without rows, one empty file)."""
        if self._rows or not self._files:
            self._finish_file()
        return tuple(self._files)

    def _begin_file(self) -> None:
        self._buffer = pa.BufferOutputStream()
        self._writer = pq.ParquetWriter(self._buffer, self._schema, compression="snappy")
        self._rows = 0

    def _finish_file(self) -> None:
        self._writer.close()
        data = self._buffer.getvalue().to_pybytes()
        name = f"{self._folder}/{uuid4()}.parquet"
        self._store.put(name, data)
        md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
        self._files.append(DataPart(key=self._store.prefix + name, size_bytes=len(data), md5=md5))


def text_column(values: Iterable[str | None]) -> pa.Array:
    """A column of strings or nulls."""
    # `pa.array` would import pandas, which takes longer than a scan of most lakes.
    builder = StringBuilder()
    builder.append_values(values)
    return builder.finish()


def number_column(type_: pa.DataType, values: Iterable[int]) -> pa.Array:
    """A column of whole numbers without nulls; `type_` is any 64-bit type."""
    numbers = array("q", values)
    return pa.Array.from_buffers(type_, len(numbers), [None, pa.py_buffer(numbers)])
