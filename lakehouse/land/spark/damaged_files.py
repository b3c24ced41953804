"""Proves that a landed file is damaged, after Spark failed or ended while it read the file.

Spark's error is no proof, since a read that storage throttles, denies or cuts short fails with the
same condition. So this process reads the file again: only content that it cannot read, either, is
damaged. An error of storage is raised, and the load is tried again later.

A damaged number in a Parquet page, or a text without line breaks such as a file that was only
allocated, makes Spark ask for more memory than there is, and ends it. This process reads both in
small parts.
"""

from os import SEEK_CUR, SEEK_END, SEEK_SET

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.declare.landing import Landing
from lakehouse.land.plan.batches import Batch, LandedFile
from lakehouse.land.plan.choose_files import may_be_by_spark
from lakehouse.land.plan.records import MAX_RECORD_BYTES, MIB
from lakehouse.store import Store

_READ_BYTES = 8 * MIB
_ROWS_AT_ONCE = 10_000


def damage_by_name(store: Store, batch: Batch, landing: Landing) -> dict[str, str]:
    """The problems of the damaged files among the files of a batch that Spark may read."""
    problems = dict[str, str]()
    for file in batch.files:
        if may_be_by_spark(file, landing):
            problem = damage_of(store, f"{batch.prefix}{file.name}", file, landing)
            if problem is not None:
                problems[file.name] = problem
    return problems


def damage_of(store: Store, path: str, file: LandedFile, landing: Landing) -> str | None:
    """Why a file cannot be read to its end; `None` if it can, or if it is gone.

    Raises:
        Transient, Refused: storage does not give the content.
    """
    content = _StoredContent(store, path, file.size_bytes)
    find = _damaged_page if landing.format == "parquet" else _endless_line
    try:
        problem = find(content)
    except FileNotFoundError:
        return None
    if problem is None:
        return None
    return f"Spark cannot read it to its end ({problem}). Land an undamaged copy"


def _damaged_page(content: "_StoredContent") -> str | None:
    try:
        with pq.ParquetFile(
            pa.PythonFile(content, "r"), buffer_size=_READ_BYTES, page_checksum_verification=True
        ) as file:
            # One column at a time, because this takes little memory.
            for group in range(file.num_row_groups):
                for name in file.schema_arrow.names:
                    batches = file.iter_batches(_ROWS_AT_ONCE, row_groups=[group], columns=[name])
                    for _ in batches:
                        pass
    except (pa.ArrowException, OSError) as error:
        if content.error is not None:
            raise content.error from None
        return " ".join(str(error).split())
    return None


def _endless_line(content: "_StoredContent") -> str | None:
    line_bytes = 0
    while data := content.read(_READ_BYTES):
        parts = data.replace(b"\r", b"\n").split(b"\n")
        line_bytes += len(parts[0])
        if line_bytes > MAX_RECORD_BYTES:
            return f"a line has more than {MAX_RECORD_BYTES} bytes"
        if len(parts) > 1:
            line_bytes = len(parts[-1])
    return None


class _StoredContent:
    """The content of a stored file, for Arrow. `error` is the error of storage, if any."""

    closed = False

    def __init__(self, store: Store, name: str, size_bytes: int) -> None:
        self._store = store
        self._name = name
        self._size_bytes = size_bytes
        self._position = 0
        self.error: Exception | None = None

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = SEEK_SET) -> int:
        start = {SEEK_SET: 0, SEEK_CUR: self._position, SEEK_END: self._size_bytes}[whence]
        self._position = start + offset
        return self._position

    def read(self, count: int) -> bytes:
        count = min(count, self._size_bytes - self._position)
        if count <= 0:
            return b""
        try:
            data = self._store.read_part(self._name, self._position, count)
        except Exception as error:
            self.error = error
            raise
        self._position += len(data)
        return data

    def close(self) -> None:
        pass
