"""Our own inventory: the storage is listed once, and written down as AWS S3 Inventory would.

1. The store is walked; rows go in batches into Parquet files below `data/`, each held in memory only until it is full.
2. The symlink file is written, then `manifest.json`, then, last of all, `manifest.checksum`.

Safety properties:
- Nothing is deleted or replaced: data files have new names, and a manifest is written only if its name is free.
- A scan that is killed leaves no `manifest.checksum`, so that no reader takes what it wrote for a report.
"""

import hashlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.lib import StringBuilder

from lakehouse.core.errors import Transient
from lakehouse.core.inventory import DataPart, Manifest, StoredObject, manifest_json
from lakehouse.engine.inventory.report import REPORTS
from lakehouse.engine.store import LOCAL, Store

SCAN = "lakehouse-scan"
_BATCH_ROWS = 10_000
_FILE_ROWS = 500_000
_MINUTE_MS = 60_000
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
# As the manifests of AWS spell it; it must say what `_SCHEMA` says.
_FILE_SCHEMA = (
    "message s3.inventory {  required binary bucket (UTF8);  required binary key (UTF8);  optional int64 size;"
    "  optional int64 last_modified_date (TIMESTAMP_MILLIS);  optional binary storage_class (UTF8);"
    "  optional binary checksum_algorithm (UTF8);}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scanned:
    """A report that was written: its manifest's name in the store, and what it holds."""

    manifest_name: str
    manifest: Manifest
    object_count: int
    size_bytes: int


def scan(store: Store, *, now_ms: int, progress: Callable[[int], None] | None = None, file_rows: int = _FILE_ROWS) -> Scanned:
    """A complete report of everything below the store's root, reports included; `progress` hears how many objects were seen.

    `now_ms` is when the listing begins. Stamps have minutes: a second scan of one minute takes the next stamp that is free.
    """
    folder = f"{REPORTS}/{store.bucket}/{SCAN}"
    written = _Written(store, folder, file_rows=file_rows)
    objects = store.walk("")
    while batch := list(islice(objects, _BATCH_ROWS)):
        written.add(batch)
        if progress:
            progress(written.object_count)
    manifest = Manifest(
        source_bucket=store.bucket,
        destination_bucket=store.bucket,
        created_ms=now_ms,
        file_format="Parquet",
        columns=tuple(_SCHEMA.names),
        files=tuple(written.files()),
    )
    name = _publish(store, folder, manifest)
    return Scanned(manifest_name=name, manifest=manifest, object_count=written.object_count, size_bytes=written.size_bytes)


class _Written:
    """The data files of one scan: at most one is held in memory."""

    def __init__(self, store: Store, folder: str, *, file_rows: int) -> None:
        self._store, self._folder, self._file_rows = store, folder, file_rows
        self._done: list[DataPart] = []
        self._begin()
        self.object_count = self.size_bytes = 0

    def add(self, batch: Sequence[StoredObject]) -> None:
        """Append rows; a file that is full is put into the store."""
        self._writer.write_batch(_rows(batch))
        self._rows += len(batch)
        self.object_count += len(batch)
        self.size_bytes += sum(each.size_bytes for each in batch)
        if self._rows >= self._file_rows:
            self._end()
            self._begin()

    def files(self) -> Iterator[DataPart]:
        """All of them, the last one put into the store, too; there is always one."""
        if self._rows or not self._done:
            self._end()
        yield from self._done

    def _begin(self) -> None:
        self._buffer = pa.BufferOutputStream()
        self._writer = pq.ParquetWriter(self._buffer, _SCHEMA, compression="snappy")
        self._rows = 0

    def _end(self) -> None:
        self._writer.close()
        data = self._buffer.getvalue().to_pybytes()
        name = f"{self._folder}/data/{uuid4()}.parquet"
        self._store.put(name, data)
        md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
        self._done.append(DataPart(key=self._store.prefix + name, size_bytes=len(data), md5=md5))


def _rows(batch: Sequence[StoredObject]) -> pa.RecordBatch:
    arrays = [
        _texts(each.bucket for each in batch),
        _texts(each.key for each in batch),
        _numbers(pa.int64(), (each.size_bytes for each in batch)),
        _numbers(pa.timestamp("ms", tz="UTC"), (each.modified_ms or 0 for each in batch)),
        _texts(each.storage_class for each in batch),
        _texts(each.checksum_algorithm for each in batch),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


# pa.array would import pandas, which takes longer than a scan of most lakes.
def _texts(values: Iterable[str | None]) -> pa.Array:
    builder = StringBuilder()
    builder.append_values(values)
    return builder.finish()


def _numbers(type_: pa.DataType, values: Iterable[int]) -> pa.Array:
    numbers = array("q", values)
    return pa.Array.from_buffers(type_, len(numbers), [None, pa.py_buffer(numbers)])


def _publish(store: Store, folder: str, manifest: Manifest) -> str:
    """Symlink, manifest and checksum, in this order, under the first stamp that is free; the manifest's name."""
    data = manifest_json(manifest, file_schema=_FILE_SCHEMA)
    for late in range(_TRIES):
        began = datetime.fromtimestamp((manifest.created_ms + late * _MINUTE_MS) / 1_000, tz=UTC)
        name = f"{folder}/{began:%Y-%m-%dT%H-%MZ}/manifest.json"
        if not store.put_if_absent(name, data):
            continue
        root = "" if store.bucket == LOCAL else f"s3://{store.bucket}/"
        links = "\n".join(f"{root}{file.key}" for file in manifest.files)
        store.put(f"{folder}/hive/dt={began:%Y-%m-%d-%H-%M}/symlink.txt", links.encode())
        checksum = hashlib.md5(data, usedforsecurity=False).hexdigest()
        store.put(f"{folder}/{began:%Y-%m-%dT%H-%MZ}/manifest.checksum", f"{checksum}\n".encode())
        return name
    raise Transient(f"inventory scan: {_TRIES} scans of {store.bucket} in the minutes before this one; try again in some minutes")
