"""Writes a batch's staged records as Parquet parts, and names the parts and their folders."""

from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.core.ingest.batches import Batch
from lakehouse.core.ingest.records import MIB, NOT_UTF_8, Record
from lakehouse.core.ingest.undeclared import NewColumns
from lakehouse.engine.store import Store

# The staged columns, as Spark reads them.
STAGED_SCHEMA = (
    "source_file STRING, line BIGINT, landed_at TIMESTAMP, raw STRING, problem STRING, "
    "undeclared STRING, digest STRING, event STRING"
)
_TYPES = {
    "STRING": pa.string(),
    "BIGINT": pa.int64(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
}
_SCHEMA = pa.schema(
    [(name, _TYPES[kind]) for name, kind in map(str.split, STAGED_SCHEMA.split(", "))]
)
_FOLDER = "_lakehouse/staged"
# A part is in memory until it reaches one of these limits. Later, one Spark task reads it.
_PART_BYTES = 16 * MIB
_PART_RECORDS = 500_000


def part_names(table_key: str, batch: Batch) -> list[str]:
    """The names of the objects with the staged records of a batch."""
    folder = batch_folder(table_key, batch.number, batch.shape)
    return [f"{folder}/{part:05}.parquet" for part in range(batch.part_count or 0)]


def clear_staged(store: Store, table_key: str) -> None:
    """Deletes all staged parts of a table.

    The caller holds the table's lock, and has made sure that no batch is unfinished.
    """
    store.delete([file.name for file in store.list(f"{_FOLDER}/{table_key}")])


def batch_folder(table_key: str, number: int, shape: str) -> str:
    """The folder in which a batch is staged. `shape`: see `Batch`."""
    suffix = f"-{shape}" if shape else ""
    return f"{_FOLDER}/{table_key}/{number}{suffix}"


class StagedParts:
    """The parts of one batch, each put into storage when it is full.

    `size_bytes` is the size of the contents of all records so far.
    """

    def __init__(self, store: Store, folder: str, new_columns: NewColumns) -> None:
        self._new_columns = new_columns
        self._store = store
        self._folder = folder
        self._count = 0
        self._buffered_bytes = 0
        self._rows: list[tuple[str, int, int, str, str | None, str | None, str, str | None]] = []
        self.size_bytes = 0

    def add(self, path: str, modified_ms: int, record: Record, digest: str) -> None:
        """Adds a record of a file with this path, time and digest.

        Bytes that are not UTF-8 are escaped, and make the record bad.
        """
        try:
            text = record.content.decode()
            problem = record.problem
        except UnicodeDecodeError:
            text = record.content.decode("utf-8", "backslashreplace")
            problem = record.problem or NOT_UTF_8
        self._rows.append(
            (
                path,
                record.line,
                modified_ms * 1_000,
                text,
                problem,
                record.undeclared,
                digest,
                record.event,
            )
        )
        if record.undeclared is not None:
            self._new_columns.see(record.undeclared, path)
        more_bytes = len(record.undeclared or "") + len(record.event or "")
        self._buffered_bytes += len(record.content) + more_bytes
        self.size_bytes += len(record.content)
        if self._buffered_bytes >= _PART_BYTES or len(self._rows) == _PART_RECORDS:
            self._put()

    def close(self) -> int:
        """Stores the last part; returns the number of parts."""
        if self._rows:
            self._put()
        return self._count

    def _put(self) -> None:
        buffer = BytesIO()
        pq.write_table(pa.table([*zip(*self._rows, strict=True)], schema=_SCHEMA), buffer)
        self._store.put(f"{self._folder}/{self._count:05}.parquet", buffer.getvalue())
        self._count += 1
        self._rows = []
        self._buffered_bytes = 0
