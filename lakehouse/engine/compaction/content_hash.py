"""The content of data files: counts and sums of hashes that no order of rows changes. Arrow reads them, and not the Spark that wrote them.

Equal sums of two sets of files mean equal rows, as far as 64 bits can tell. Others prove nothing: the same rows may be stored in another
way (without a column that was dropped, by another calendar), and then Spark is asked (`verify`).
"""

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from threading import get_native_id
from typing import Any, Self, cast
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakehouse.core.compaction.bins import Bin
from lakehouse.core.delta.partition_values import by_name, type_of_typed_partition, typed_partition
from lakehouse.core.delta.snapshot import DataFile, Snapshot
from lakehouse.core.errors import Broken
from lakehouse.engine.delta_log.deletion_vectors import hidden_rows, type_of_places
from lakehouse.engine.store import Store
from lakehouse.engine.store.portions import in_portions

type_of_sum = tuple[int, int]
type_of_sums = Mapping[type_of_typed_partition, type_of_sum]
type_of_hashes = np.ndarray[tuple[int], np.dtype[np.uint64]]

# With these features a file alone does not tell its rows: names and types come from the log.
READ_THROUGH_LOG = frozenset({"columnMapping", "typeWidening", "typeWidening-preview"})
# Rows hashed at once: many enough for numpy, few enough for memory where texts are long and repeated, which files and their sizes hide.
_ROWS = 16 * 1024
# Files are held in memory whole, and some at a time where storage is far.
_MOST_BYTES, _MOST_FILES = 256 * 1024 * 1024, 64
# One core reads them all; where there are more bytes, Spark does it on all of its own.
_MOST_BYTES_IN_ALL = 1024 * 1024 * 1024
# Their places are held in memory, 8 bytes each, and those of runs of rows take next to nothing in a file.
_MOST_DELETED_ROWS = _MOST_BYTES // 8
_ENDLESS = 2**64


def sums_of(
    store: Store,
    snapshot: Snapshot,
    files: Sequence[DataFile],
    *,
    wanted: Callable[[], bool] = lambda: True,
) -> type_of_sums | None:
    """For each partition how many rows there are and the sum of their hashes; `None` where Arrow cannot tell, or nobody wants it any more.

    It does not tell of large files, of those that only the log can tell, of many deleted rows, and of a Parquet file or a deletion vector
    that it cannot read.
    """
    sizes = [file.size_bytes for file in files]
    if (
        not READ_THROUGH_LOG.isdisjoint(snapshot.features)
        or max(sizes, default=0) > _MOST_BYTES
        or sum(sizes) > _MOST_BYTES_IN_ALL
    ):
        return None
    if sum(file.deleted_row_count for file in files) > _MOST_DELETED_ROWS:
        return None
    columns, partition_columns = (
        by_name(snapshot.columns),
        frozenset(snapshot.partition_columns),
    )  # of these the log tells
    by_partition: dict[type_of_typed_partition, list[DataFile]] = {}
    for file in files:
        by_partition.setdefault(typed_partition(file.partition, columns), []).append(file)
    sums: dict[type_of_typed_partition, type_of_sum] = {}
    try:
        hidden = hidden_rows(store, snapshot.table, files)
        for partition, own in by_partition.items():
            count = total = 0
            for rows in _portions(_tables(store, snapshot.table, own, hidden, wanted)):
                own_columns = rows.drop_columns(
                    sorted(partition_columns.intersection(rows.column_names))
                )
                values = [column.combine_chunks() for column in own_columns.columns]
                hashes = _mixed(_hashes_of_fields(own_columns.column_names, values, len(rows)))
                count, total = count + rows.num_rows, total + int(hashes.sum(dtype=np.uint64))
            if not wanted():
                return None
            if count:
                sums[partition] = (count, total % _ENDLESS)
    except Exception:  # whatever it was, Spark meets it, too, if it is in the files or in storage
        return None
    return sums


def row_count_of(store: Store, snapshot: Snapshot, file: DataFile) -> int | None:
    """The rows of a file that are not deleted, by its own footer; `None` where it cannot be read."""
    try:
        with pq.ParquetFile(
            pa.BufferReader(store.read(f"{snapshot.table}/{unquote(file.path)}"))
        ) as content:
            return content.metadata.num_rows - file.deleted_row_count
    except Exception:  # whatever it was, the file tells nothing
        return None


class ReadAhead:
    """Sums what a statement is about to remove while it runs, on a thread of this process; the end of the `with` ends it."""

    def __init__(self, store: Store, snapshot: Snapshot, bins: Sequence[Bin]) -> None:
        self._files = [file for bin_ in bins for file in bin_.files]
        self._wanted = all(
            bin_.size_bytes <= _MOST_BYTES for bin_ in bins
        )  # else what comes of it cannot be told
        self._pool = ThreadPoolExecutor(1, initializer=_stand_back)
        self._read = partial(sums_of, store, snapshot, self._files, wanted=lambda: self._wanted)

    def __enter__(self) -> Self:
        self._sums = self._pool.submit(self._read)
        return self

    def __exit__(self, *_: object) -> None:
        self._wanted = False
        self._pool.shutdown(wait=False)

    def has_read(self, files: Iterable[DataFile]) -> bool:
        """Whether it reads exactly these, as they are."""
        return sorted(map(_identity, files)) == sorted(map(_identity, self._files))

    def sums(self) -> type_of_sums | None:
        """As `sums_of`; waits for it."""
        return self._sums.result()


def _identity(file: DataFile) -> tuple[str, str]:
    """A path with another deletion vector is another file."""
    return file.path, file.deletion_vector or ""


def _stand_back() -> None:
    """The statement comes first; it leaves a core idle where it writes, and nearly one where Delta plans and commits."""
    if sys.platform == "linux":  # where a thread has a priority of its own
        with contextlib.suppress(OSError):  # a container may forbid it
            os.setpriority(os.PRIO_PROCESS, get_native_id(), 19)


def _tables(
    store: Store,
    table: str,
    files: Sequence[DataFile],
    hidden: Mapping[str, type_of_places],
    wanted: Callable[[], bool],
) -> Iterator[pa.Table]:
    """The rows of each file that no deletion vector hides, some at a time."""
    for portion in in_portions(files, most_bytes=_MOST_BYTES, most_files=_MOST_FILES):
        contents = store.read_many([f"{table}/{unquote(file.path)}" for file in portion])
        for file, content in zip(portion, contents, strict=True):
            if not wanted():
                return
            rows = _tables_of(content)
            yield from (
                rows
                if file.deletion_vector is None
                else _visible(rows, hidden[file.deletion_vector])
            )


def _tables_of(content: bytes) -> Iterator[pa.Table]:
    with pq.ParquetFile(pa.BufferReader(content), coerce_int96_timestamp_unit="us") as file:
        told = file.metadata
        size_bytes = sum(
            told.row_group(number).total_byte_size for number in range(told.num_row_groups)
        )
        at_once = max(1, min(_ROWS, told.num_rows * _MOST_BYTES // max(1, size_bytes)))
        if told.num_rows <= at_once:
            yield file.read(use_threads=False)  # a third of the time, where files are small
        else:
            yield from (
                pa.Table.from_batches([batch])
                for batch in file.iter_batches(at_once, use_threads=False)
            )


def _visible(tables: Iterable[pa.Table], hidden: type_of_places) -> Iterator[pa.Table]:
    """The tables, which follow each other in a file, without the rows at these places of it."""
    start = 0
    for table in tables:
        first, after = np.searchsorted(hidden, np.array((start, start + len(table)), np.uint64))
        is_visible = np.ones(len(table), bool)
        is_visible[hidden[first:after] - np.uint64(start)] = False
        start += len(table)
        yield table.filter(pa.array(is_visible))
    if len(hidden) and hidden[-1] >= start:
        raise Broken(f"a deletion vector hides row {hidden[-1]} of a file with {start}")


def _portions(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows, small tables put together; a column that one of them lacks is null there."""
    waiting: list[pa.Table] = []
    row_count = size_bytes = 0
    for table in tables:
        if waiting and (row_count + len(table) > _ROWS or size_bytes + table.nbytes > _MOST_BYTES):
            yield pa.concat_tables(waiting, promote_options="default")
            waiting, row_count, size_bytes = [], 0, 0
        waiting.append(table)
        row_count, size_bytes = row_count + len(table), size_bytes + table.nbytes
    if waiting:
        yield pa.concat_tables(waiting, promote_options="default")


def _mixed(values: Any) -> type_of_hashes:
    """A number for each value of a numpy array; of equal values the same."""
    from pandas.util import hash_array  # takes half a second, and definitions are loaded without it

    # Not by categories: pandas finds these by the text up to its first NUL, and two texts that differ after one would be the same.
    return cast("type_of_hashes", hash_array(values, categorize=False))  # type: ignore[call-arg]  # the stubs lack it


def _hashes_of_fields(
    names: Sequence[str], values: Iterable[pa.Array], count: int
) -> type_of_hashes:
    """One number for the fields of each row; a field that is null adds nothing, as one that is not there."""
    total = np.zeros(count, np.uint64)
    for name, array in zip(names, values, strict=True):
        hashes = _mixed(_hashes(array) ^ _seed(name, _kind(array.type)))
        if array.null_count:
            hashes[array.is_null().to_numpy(zero_copy_only=False)] = 0
        total += hashes
    return total


@cache
def _seed(name: str, kind: str) -> np.uint64:
    """The number of a field; asked for with each portion of its values."""
    return _mixed(np.array([f"{name} {kind}"], dtype=object))[0]


def _kind(kind: pa.DataType) -> str:
    """Numbers of two types are two things; a moment is one, however it is stored."""
    if pa.types.is_nested(kind):
        return ""
    return "timestamp" if pa.types.is_timestamp(kind) else str(kind)


def _hashes(array: pa.Array) -> type_of_hashes:
    """One number for each value; anything where it is null."""
    kind = array.type
    if pa.types.is_struct(kind):
        return _hashes_of_fields(
            [field.name for field in kind],
            [
                pc.call_function("struct_field", [array], pc.StructFieldOptions([place]))
                for place in range(len(kind))
            ],
            len(array),
        )
    if pa.types.is_map(kind):
        array = array.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
    if pa.types.is_list(array.type):
        return _hashes_of_lists(array)
    if pa.types.is_timestamp(kind):
        array = array.cast(pa.timestamp("us", kind.tz))
    if pa.types.is_temporal(kind):
        array = array.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    elif pa.types.is_decimal(kind):
        array = array.cast(pa.string())
    if not pa.types.is_primitive(array.type):  # of texts, each once
        encoded = array.dictionary_encode()
        texts, places = (
            _mixed(encoded.dictionary.to_numpy(zero_copy_only=False)),
            encoded.indices.fill_null(0).to_numpy(),
        )
        return texts[places] if len(texts) else np.zeros(len(array), np.uint64)
    if array.null_count:
        array = array.fill_null(False if pa.types.is_boolean(array.type) else 0)
    return _mixed(array.to_numpy(zero_copy_only=False))


def _hashes_of_lists(array: pa.ListArray) -> type_of_hashes:
    """Of the values in their order, and of how many there are."""
    lengths = array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    ends = lengths.cumsum()
    inner = array.flatten()
    places = np.arange(len(inner), dtype=np.uint64) - np.repeat(
        (ends - lengths).astype(np.uint64), lengths
    )
    values = _mixed(_hashes_of_fields(["element"], [inner], len(inner)) ^ _mixed(places))
    upto = np.concatenate([np.zeros(1, np.uint64), values.cumsum(dtype=np.uint64)])
    return upto[ends] - upto[ends - lengths] + lengths.astype(np.uint64)
