"""Row counts and sums of row hashes of data files, by partition, computed without Spark.

Files on a disk are read in batches, files on S3 are loaded into memory, one at a time. The sums do
not depend on the order of rows, nor on the type in which a writer stored a value (INT96, smaller
integers). The files have no deletion vectors, because deltalake compacts no table that may have
them.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, cast
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from lakehouse.core.delta.partition_values import by_name
from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.engine.compaction.row_hashes_spark import (
    PartitionSums,
    RowSum,
    Side,
    sums_by_partition,
)
from lakehouse.engine.lake import Lake
from lakehouse.engine.store import Store

pc: Any = pyarrow.compute  # pyright does not know its generated functions
# Two odd constants, by which numbers are multiplied to mix their bits. The second one also stands
# for a null value.
_FIRST_FACTOR = 0x9E3779B97F4A7C15
_SECOND_FACTOR = 0xD1B54A32D192ED03
_NULL_NUMBER = _SECOND_FACTOR
_LOW_BITS = 0xFFFFFFFF


def arrow_sums(lake: Lake, snapshot: Snapshot, sides: Sequence[Side]) -> list[PartitionSums]:
    """For each side, row counts and sums of hashes by partition.

    Raises:
        FileNotFoundError, ArrowException: a file is missing, or cannot be read.
    """
    columns = by_name(snapshot.columns)
    names = [name for name in columns if name not in snapshot.partition_columns]
    sums = list[PartitionSums]()
    for side in sides:
        paths = [f"{snapshot.table}/{unquote(file.path)}" for file in side.files]
        file_sums = [_sum_of(lake.store, path, names) for path in paths]
        sums.append(sums_by_partition(side, file_sums, columns))
    return sums


def _sum_of(store: Store, path: str, names: Sequence[str]) -> RowSum:
    """The sum of one file. A column that the file lacks counts as null."""
    count = 0
    total = 0
    with (
        store.open(path) as file,
        pq.ParquetFile(file, coerce_int96_timestamp_unit="us") as parquet,
    ):
        present = set(parquet.schema_arrow.names)
        stored = [name for name in names if name in present]
        for batch in parquet.iter_batches(columns=stored):
            hashes = pa.repeat(_uint(0), batch.num_rows)
            for name in names:
                salt = _hash_of(name)
                column = batch.column(name) if name in present else pa.nulls(batch.num_rows)
                hashes = pc.add(hashes, _mixed(_numbers(column), salt))
            hashes = _mixed(hashes, _FIRST_FACTOR)
            # Both halves are summed separately, because the sum of whole hashes would overflow.
            high = pc.shift_right(hashes, _uint(32))
            low = pc.bit_wise_and(hashes, _uint(_LOW_BITS))
            count += batch.num_rows
            total += ((pc.sum(high).as_py() or 0) << 32) + (pc.sum(low).as_py() or 0)
    return count, total


def _mixed(numbers: Any, salt: int) -> Any:
    """Each number, mixed so that sums of several columns do not cancel out. Overflows wrap."""
    mixed = pc.multiply(pc.bit_wise_xor(numbers, _uint(salt)), _uint(_FIRST_FACTOR))
    mixed = pc.bit_wise_xor(mixed, pc.shift_right(mixed, _uint(29)))
    mixed = pc.multiply(mixed, _uint(_SECOND_FACTOR))
    return pc.bit_wise_xor(mixed, pc.shift_right(mixed, _uint(32)))


def _numbers(column: Any) -> Any:
    """A number of 64 bits for each value: equal for equal values, whatever their storage."""
    kind = column.type
    if pa.types.is_null(kind):
        return pa.repeat(_uint(_NULL_NUMBER), len(column))
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", tz=kind.tz), safe=False).cast(pa.int64())
    elif pa.types.is_floating(kind):
        column = column.cast(pa.float64())
    elif pa.types.is_date32(kind):
        column = column.cast(pa.int32()).cast(pa.int64())
    elif pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        column = column.cast(pa.int64())
    else:
        return _hashes_of_values(column)
    return pc.fill_null(column.view(pa.uint64()), _uint(_NULL_NUMBER))


def _hashes_of_values(column: Any) -> Any:
    """The hash of each value: of a nested value, a string, a decimal or binary data."""
    if pa.types.is_nested(column.type):
        hashes = [None if each is None else _hash_of(_plain(each)) for each in column.to_pylist()]
        return pc.fill_null(pa.array(hashes, pa.uint64()), _uint(_NULL_NUMBER))
    encoded = column.dictionary_encode()
    hashes = [_hash_of(each) for each in encoded.dictionary.to_pylist()]
    return pc.fill_null(pa.array(hashes, pa.uint64()).take(encoded.indices), _uint(_NULL_NUMBER))


def _plain(value: Any) -> Any:
    """A nested value without its null members, because older files lack newer fields."""
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value).items()
        return {name: _plain(each) for name, each in sorted(members) if each is not None}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in cast("Sequence[Any]", value)]
    return value


def _hash_of(value: object) -> int:
    return int.from_bytes(blake2b(repr(value).encode(), digest_size=8).digest())


def _uint(number: int) -> Any:
    return pa.scalar(number, pa.uint64())
