"""Reads checkpoints: classic in one or several files, or V2 with sidecars.

A checkpoint may name millions of files. Therefore, from Parquet files, only the columns that a
`Snapshot` needs are read, in batches. Source: PROTOCOL.md, "Checkpoints" and "V2 Spec".
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from itertools import islice, pairwise
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.base.errors import Broken, Refused
from lakehouse.delta.file_columns import Texts, TombstoneColumns
from lakehouse.delta.log.actions import (
    MALFORMED,
    Actions,
    AddedColumns,
    TextPairs,
    append_removed,
    number,
    parse_actions,
    row_count_of,
    vector_id,
)
from lakehouse.delta.log.log_segment import LogContradiction, Segment
from lakehouse.store import Store

_VECTOR = ("storageType", "pathOrInlineDv", "offset", "cardinality")
_ADD = (
    "path",
    "size",
    "modificationTime",
    "partitionValues",
    "stats_parsed.numRecords",
    *(f"deletionVector.{leaf}" for leaf in _VECTOR),
)
_REMOVE = ("path", "deletionTimestamp", "size", *(f"deletionVector.{leaf}" for leaf in _VECTOR[:3]))
# Errors that reading a damaged file may raise.
UNREADABLE = (pa.ArrowException, OSError, Broken, *MALFORMED)
_BATCH_ROWS = 65_536  # smaller batches take longer, larger batches more memory
_TABLE_KINDS = ("metaData", "protocol", "txn", "domainMetadata", "sidecar")  # few actions each


@dataclass(slots=True)
class Checkpoint:
    """A checkpoint's content.

    `table_actions` are the actions that are not about data files.
    """

    adds: AddedColumns = field(default_factory=AddedColumns)
    removes: TombstoneColumns = field(default_factory=TombstoneColumns)
    table_actions: Actions = field(default_factory=Actions)

    @property
    def add_count(self) -> int:
        """The number of `add` actions, later including those that `fold_layout` appends."""
        return len(self.adds)


def read_checkpoint(store: Store, segment: Segment) -> Checkpoint:
    """The content of a segment's checkpoint; empty if the segment has none.

    Raises:
        LogContradiction: a file is damaged, or a sidecar is missing or of another size.
        FileNotFoundError: a file of the checkpoint itself is missing.
        Refused: a sidecar's path contains a folder.
    """
    checkpoint = Checkpoint()
    for file in segment.checkpoint:
        data = store.read(file.name)
        with _reading(file.name, f"checkpoint {file.name}"):
            _read_into(checkpoint, data, file.name)
    folder = f"{segment.table}/_delta_log/_sidecars"
    for sidecar, size_bytes in checkpoint.table_actions.sidecars:
        name = segment.checkpoint[0].name
        path = unquote(sidecar)
        if "/" in path:
            raise Refused(
                f"checkpoint {name}: the path of its sidecar {sidecar} contains a folder. Use "
                f"names of files in {folder}"
            )
        subject = f"checkpoint {name}: its sidecar {path}"
        try:
            data = store.read(f"{folder}/{path}")
        except FileNotFoundError as error:
            raise LogContradiction(f"{subject} is missing", suspect=name) from error
        if size_bytes not in (None, len(data)):
            sizes = f"has {len(data)} bytes, but the checkpoint records {size_bytes}"
            raise LogContradiction(f"{subject} {sizes}", suspect=name)
        with _reading(name, subject):
            _read_into(checkpoint, data, path)
    return checkpoint


@contextmanager
def _reading(name: str, subject: str) -> Iterator[None]:
    try:
        yield
    except UNREADABLE as error:
        reason = str(error) if isinstance(error, Broken) else f"{type(error).__name__}: {error}"
        raise LogContradiction(f"{subject} cannot be read ({reason})", suspect=name) from error


def _read_into(checkpoint: Checkpoint, data: bytes, name: str) -> None:
    """Adds the actions of one file to the checkpoint."""
    if name.endswith(".json"):
        actions = parse_actions(data, name)
        for add in actions.adds:
            checkpoint.adds.append(add)
        for remove in actions.removes:
            append_removed(checkpoint.removes, remove)
        checkpoint.table_actions.merge_newer(actions)
        return
    with pq.ParquetFile(pa.BufferReader(data)) as file:
        for kind in _TABLE_KINDS:
            for rows in batches(file, kind, ()):
                for action in rows.to_pylist(maps_as_pydicts="lossy"):
                    checkpoint.table_actions.take(kind, action)
        first = len(checkpoint.adds)
        for rows in batches(file, "add", _ADD):
            _append_adds(checkpoint.adds, rows)
        _count_rows(file, checkpoint.adds, first)
        for rows in batches(file, "remove", _REMOVE):
            _append_removes(checkpoint.removes, rows)


def batches(file: pq.ParquetFile, kind: str, leaves: Iterable[str]) -> Iterator[pa.StructArray]:
    """Yields the actions of one kind, with the fields in `leaves` (empty: all fields)."""
    if kind in file.schema_arrow.names:
        columns = [f"{kind}.{leaf}" for leaf in leaves] or [kind]
        for batch in file.iter_batches(_BATCH_ROWS, columns=columns, use_threads=False):
            rows = batch.column(kind)
            yield rows.filter(rows.is_valid()) if rows.null_count else rows


def _append_adds(adds: AddedColumns, rows: pa.StructArray) -> None:
    first = len(adds)
    for index, vector in vectors_of(rows):
        adds.vectors[first + index] = vector_id(vector), number(vector, "cardinality")
    partition_numbers, partitions = _partitions(rows.field("partitionValues"))
    indices = [adds.index_of(pairs) for pairs in partitions]
    adds.partition.extend(map(indices.__getitem__, partition_numbers))
    counts = pa.nulls(len(rows), pa.int64())
    if _has(rows, "stats_parsed") and rows.field("stats_parsed").type.num_fields:
        counts = _whole_numbers(rows.field("stats_parsed").flatten()[0], "numRecords")
    _append_texts(adds.path, texts_of(rows, "path"))
    _append_numbers(adds.size_bytes, _numbers(rows, "size"))
    _append_numbers(adds.modified_ms, _numbers(rows, "modificationTime"))
    _append_numbers(adds.row_count, counts)


def _append_removes(removes: TombstoneColumns, rows: pa.StructArray) -> None:
    first = len(removes.size_bytes)
    for index, vector in vectors_of(rows):
        removes.vectors[first + index] = vector_id(vector)
    _append_texts(removes.path, texts_of(rows, "path"))
    _append_numbers(removes.deleted_ms, _numbers_or_none(rows, "deletionTimestamp"))
    _append_numbers(removes.size_bytes, _numbers_or_none(rows, "size"))


def _append_texts(texts: Texts, column: pa.Array) -> None:
    """Copies Arrow's text and the end of each value, shifted to its place in `texts.data`."""
    column = pa.concat_arrays([column.cast(pa.large_string())])
    column.validate(full=True)  # otherwise, a damaged text raises only when it is read
    if not len(column):
        return
    _, bounds, data = column.buffers()
    offsets = memoryview(bounds).cast("q")
    first, last = offsets[column.offset], offsets[column.offset + len(column)]
    ends = pa.Array.from_buffers(pa.int64(), len(column), [None, bounds], offset=column.offset + 1)
    _append_numbers(texts.bounds, compute().add(ends, integers([len(texts.data) - first])[0]))
    texts.data += memoryview(data)[first:last]


def compute() -> Any:
    """Arrow's compute functions, untyped. They are imported late, since small logs need none."""
    return import_module("pyarrow.compute")


def integers(values: Iterable[int]) -> pa.Array:
    """An Arrow array of integers. The first `pyarrow.array` takes 0.25 s: it imports pandas."""
    numbers = array("q", values)
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])


def _append_numbers(numbers: "array[int]", column: pa.Array) -> None:
    """Adds a column of integers. A null becomes -1, which means unknown."""
    filled = compute().coalesce(column.cast(pa.int64()), integers([-1])[0])
    numbers.frombytes(filled.buffers()[1][8 * filled.offset : 8 * (filled.offset + len(filled))])


def _count_rows(file: pq.ParquetFile, adds: AddedColumns, first: int) -> None:
    """Reads missing row counts from the JSON statistics, for the actions from `first` on."""
    if min(islice(adds.row_count, first, None), default=0) >= 0:
        return
    index = first
    for rows in batches(file, "add", ("path", "stats")):
        texts = rows.field("stats").to_pylist() if _has(rows, "stats") else [None] * len(rows)
        for text in texts:
            if adds.row_count[index] < 0:
                count = row_count_of(text)
                adds.row_count[index] = -1 if count is None else count
            index += 1


def _has(rows: pa.StructArray, name: str) -> bool:
    return rows.type.get_field_index(name) >= 0


def texts_of(rows: pa.StructArray, name: str) -> pa.Array:
    """The string column `name`. Raises `ValueError` if an action has no value."""
    return _required(rows.field(name), name, _is_text, "a string")


def _numbers(rows: pa.StructArray, name: str) -> pa.Array:
    return _required(rows.field(name), name, pa.types.is_integer, "an integer")


def _required(
    column: pa.Array, name: str, is_kind: Callable[[pa.DataType], bool], kind: str
) -> Any:
    if column.null_count or not is_kind(column.type):
        raise ValueError(
            f"{name} is {column.type}, with nulls: {column.null_count}. Every value must be {kind}"
        )
    return column


def _numbers_or_none(rows: pa.StructArray, name: str) -> pa.Array:
    if not _has(rows, name):
        return pa.nulls(len(rows), pa.int64())
    return _whole_numbers(rows.field(name), name)


def _whole_numbers(column: pa.Array, name: str) -> pa.Array:
    if pa.types.is_integer(column.type) or pa.types.is_null(column.type):
        return column
    raise ValueError(f"{name} is {column.type}, and must be an integer")


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _is_map_of_texts(kind: pa.DataType) -> bool:
    return pa.types.is_map(kind) and _is_text(kind.key_type) and _is_text(kind.item_type)


def vectors_of(rows: pa.StructArray) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The deletion vectors, each with the index of its row."""
    if not _has(rows, "deletionVector") or rows.field("deletionVector").null_count == len(rows):
        return
    for index, vector in enumerate(rows.field("deletionVector").to_pylist()):
        # Some writers store a struct of nulls for a missing vector.
        if vector and any(value is not None for value in vector.values()):
            yield index, vector


def _partitions(column: pa.MapArray) -> tuple[Sequence[int], list[TextPairs]]:
    """For each row, an index into the returned partitions. Some partitions may be unused."""
    _required(column, "partitionValues", _is_map_of_texts, "a map of strings")
    name_codes = column.keys.dictionary_encode()
    value_codes = column.items.dictionary_encode()
    names = name_codes.dictionary.to_pylist()
    values = [*value_codes.dictionary.to_pylist(), None]
    null = len(values) - 1  # Arrow's `fill_null` would import pandas
    codes = [null if code is None else code for code in value_codes.indices.to_pylist()]
    offsets = column.offsets.to_pylist()
    if len(names) == 1 and offsets == list(range(len(codes) + 1)):  # one value in every row
        return codes, [((names[0], value),) for value in values]
    entries = list(zip(name_codes.indices.to_pylist(), codes, strict=True))
    indices: dict[tuple[tuple[int, int], ...], int] = {}
    row_indices = [indices.setdefault(row, len(indices)) for row in _rows_of(entries, offsets)]
    return row_indices, [tuple((names[n], values[v]) for n, v in row) for row in indices]


def _rows_of(
    entries: Sequence[tuple[int, int]], offsets: Sequence[int]
) -> Iterable[tuple[tuple[int, int], ...]]:
    """The entries of each map. Nearly always, all maps have the same number of entries."""
    width = len(entries) // max(len(offsets) - 1, 1)
    if width and offsets == list(range(0, len(entries) + 1, width)):
        return zip(*[iter(entries)] * width, strict=True)
    return (tuple(entries[start:end]) for start, end in pairwise(offsets))
