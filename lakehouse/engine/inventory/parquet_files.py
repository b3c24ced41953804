"""Writes rows to a store as Parquet files, one file at a time."""

import hashlib
from array import array
from collections.abc import Iterable
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.lib import StringBuilder

from lakehouse.core.inventory.report_manifest import DataPart
from lakehouse.engine.store import Store

BATCH_ROWS = 10_000
FILE_ROWS = 500_000


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
