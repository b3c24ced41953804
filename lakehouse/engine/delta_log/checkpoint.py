"""Reads checkpoints: classic in one or several files, or V2 with sidecars.

A checkpoint may name millions of files. So only the columns that a `Snapshot` needs are read, in
batches of some ten thousand rows. Source: PROTOCOL.md, "Checkpoints" and "V2 Spec".
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.core.errors import Broken, Refused
from lakehouse.engine.delta_log.actions import (
    Actions,
    AddedColumns,
    RemovedColumns,
    added_columns,
    parse_actions,
    removed_columns,
    row_count_of,
    vector_id,
)
from lakehouse.engine.delta_log.fields import MALFORMED, TextPairs, number
from lakehouse.engine.delta_log.log_segment import Segment, UnreadableCheckpoint
from lakehouse.engine.store import Store

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
_UNREADABLE = (pa.ArrowException, OSError, Broken, *MALFORMED)
_BATCH_ROWS = 65_536  # smaller batches take longer, larger ones more memory
_SMALL = ("metaData", "protocol", "txn", "domainMetadata", "sidecar")  # few actions of each


@dataclass(slots=True)
class Checkpoint:
    """A checkpoint's content, with its data files in batches.

    `small` holds all actions that are not about data files. `row_count` is the number of actions in
    the checkpoint without its sidecars.
    """

    adds: list[AddedColumns] = field(default_factory=list[AddedColumns])
    removes: list[RemovedColumns] = field(default_factory=list[RemovedColumns])
    small: Actions = field(default_factory=Actions)
    row_count: int = 0

    @property
    def add_count(self) -> int:
        """The number of live files at the checkpoint's version."""
        return sum(len(adds.path) for adds in self.adds)


def read_checkpoint(store: Store, segment: Segment) -> Checkpoint:
    """The content of a segment's checkpoint; empty if the segment has none.

    Raises:
        UnreadableCheckpoint: one of its files is damaged, or a sidecar is missing or differs in
            size from what the checkpoint records.
    """
    checkpoint = Checkpoint()
    for file in segment.checkpoint:
        data = store.read(file.name)
        try:
            checkpoint.row_count += _read_into(checkpoint, data, file.name)
        except _UNREADABLE as error:
            raise UnreadableCheckpoint(
                file.name, f"checkpoint {file.name} cannot be read ({_text_of(error)})"
            ) from error
    folder = f"{segment.table}/_delta_log/_sidecars"
    for sidecar, size_bytes in checkpoint.small.sidecars:
        path = unquote(sidecar)
        if "/" in path:
            raise Refused(
                f"checkpoint {segment.checkpoint[0].name}: its sidecar {sidecar} has a path with "
                f"folders; use names of files in {folder}"
            )
        name = segment.checkpoint[0].name
        try:
            data = store.read(f"{folder}/{path}")
        except FileNotFoundError as error:
            raise UnreadableCheckpoint(
                name, f"checkpoint {name}: its sidecar {path} is missing", lacks_sidecar=True
            ) from error
        if size_bytes not in (None, len(data)):
            raise UnreadableCheckpoint(
                name,
                f"checkpoint {name}: its sidecar {path} has {len(data)} bytes, but the "
                f"checkpoint records {size_bytes}",
            )
        try:
            _read_into(checkpoint, data, path)
        except _UNREADABLE as error:
            raise UnreadableCheckpoint(
                name, f"checkpoint {name}: its sidecar {path} cannot be read ({_text_of(error)})"
            ) from error
    return checkpoint


def file_paths_in(data: bytes) -> set[str]:
    """The paths that can be read from a checkpoint's Parquet file, which may be damaged."""
    paths = set[str]()
    with suppress(*_UNREADABLE), pq.ParquetFile(pa.BufferReader(data)) as file:
        for kind in ("add", "remove"):
            for rows in _batches(
                file, kind, ("path", *(f"deletionVector.{each}" for each in _VECTOR[:2]))
            ):
                paths.update(_texts(rows, "path"))
                vectors = filter(None, _vectors(rows))
                paths.update(each[_VECTOR[1]] for each in vectors if each[_VECTOR[0]] == "p")
    return paths


def statistics_in(data: bytes) -> Iterator[tuple[str, str | None]]:
    """Path and statistics of each file that a Parquet checkpoint adds.

    Yields nothing if the checkpoint has no statistics in JSON.
    """
    with pq.ParquetFile(pa.BufferReader(data)) as file:
        for rows in _batches(file, "add", ("path", "stats")):
            if _has(rows, "stats"):
                yield from zip(_texts(rows, "path"), rows.field("stats").to_pylist(), strict=True)


def _read_into(checkpoint: Checkpoint, data: bytes, name: str) -> int:
    """Adds the actions of one file to the checkpoint, and returns their number."""
    if name.endswith(".json"):
        actions = parse_actions(data, name)
        checkpoint.adds.append(added_columns(actions.adds))
        checkpoint.removes.append(removed_columns(actions.removes))
        checkpoint.small.learn(actions)
        return len(data.splitlines())
    with pq.ParquetFile(pa.BufferReader(data)) as file:
        _read_parquet_into(checkpoint, file)
        return file.metadata.num_rows


def _text_of(error: Exception) -> str:
    return str(error) if isinstance(error, Broken) else f"{type(error).__name__}: {error}"


def _read_parquet_into(checkpoint: Checkpoint, file: pq.ParquetFile) -> None:
    for kind in _SMALL:
        for rows in _batches(file, kind, ()):
            for action in rows.to_pylist(maps_as_pydicts="lossy"):
                checkpoint.small.take(kind, action)
    checkpoint.adds += _counted(file, [_adds(rows) for rows in _batches(file, "add", _ADD)])
    checkpoint.removes += map(_removes, _batches(file, "remove", _REMOVE))


def _batches(file: pq.ParquetFile, kind: str, leaves: Iterable[str]) -> Iterator[pa.StructArray]:
    """The actions of one kind, with only the fields in `leaves`, or all fields if it is empty.

    Actions of other kinds are null in this kind's column, and are omitted.
    """
    if kind in file.schema_arrow.names:
        wanted = [f"{kind}.{leaf}" for leaf in leaves] or [kind]
        for batch in file.iter_batches(_BATCH_ROWS, columns=wanted, use_threads=False):
            rows = batch.column(kind)
            yield rows.filter(rows.is_valid()) if rows.null_count else rows


def _adds(rows: pa.StructArray) -> AddedColumns:
    vectors = _vectors(rows)
    places, pairs = _partitions(rows.field("partitionValues"))
    counts: list[int | None] = [None] * len(rows)
    if _has(rows, "stats_parsed") and rows.field("stats_parsed").type.num_fields:
        counts = _whole_numbers(rows.field("stats_parsed").flatten()[0], "numRecords")
    return AddedColumns(
        path=_texts(rows, "path"),
        vector=_vector_ids(vectors),
        size_bytes=_numbers(rows, "size"),
        modified_ms=_numbers(rows, "modificationTime"),
        places=places,
        pairs=pairs,
        row_count=counts,
        deleted_row_count=[
            0 if vector is None else number(vector, "cardinality") for vector in vectors
        ],
    )


def _removes(rows: pa.StructArray) -> RemovedColumns:
    return RemovedColumns(
        path=_texts(rows, "path"),
        vector=_vector_ids(_vectors(rows)),
        deleted_ms=_numbers_or_none(rows, "deletionTimestamp"),
        size_bytes=_numbers_or_none(rows, "size"),
    )


def _counted(file: pq.ParquetFile, adds: Sequence[AddedColumns]) -> Iterator[AddedColumns]:
    """The same actions, with missing row counts filled in from the statistics in JSON."""
    if not any(None in batch.row_count for batch in adds):
        yield from adds
        return
    for batch, rows in zip(adds, _batches(file, "add", ("path", "stats")), strict=True):
        texts = rows.field("stats").to_pylist() if _has(rows, "stats") else [None] * len(rows)
        counts = [
            row_count_of(text) if count is None else count
            for count, text in zip(batch.row_count, texts, strict=True)
        ]
        yield batch._replace(row_count=counts)


def _has(rows: pa.StructArray, name: str) -> bool:
    return rows.type.get_field_index(name) >= 0


def _texts(rows: pa.StructArray, name: str) -> list[str]:
    return _required(rows.field(name), name, _is_text, "a string").to_pylist()


def _numbers(rows: pa.StructArray, name: str) -> list[int]:
    return _required(rows.field(name), name, pa.types.is_integer, "an integer").to_pylist()


def _required(
    column: pa.Array, name: str, is_kind: Callable[[pa.DataType], bool], kind: str
) -> Any:
    if column.null_count or not is_kind(column.type):
        raise ValueError(
            f"{name} is {column.type}, null in {column.null_count} file(s), and must be {kind}"
        )
    return column


def _numbers_or_none(rows: pa.StructArray, name: str) -> list[int | None]:
    return _whole_numbers(rows.field(name), name) if _has(rows, name) else [None] * len(rows)


def _whole_numbers(column: pa.Array, name: str) -> list[int | None]:
    if not (pa.types.is_integer(column.type) or pa.types.is_null(column.type)):
        raise ValueError(f"{name} is {column.type}, and must be an integer")
    return column.to_pylist()


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _is_map_of_texts(kind: pa.DataType) -> bool:
    return pa.types.is_map(kind) and _is_text(kind.key_type) and _is_text(kind.item_type)


def _vectors(rows: pa.StructArray) -> list[dict[str, Any] | None]:
    """Each row's deletion vector; `None` if it has none."""
    if not _has(rows, "deletionVector") or rows.field("deletionVector").null_count == len(rows):
        return [None] * len(rows)
    vectors: list[dict[str, Any] | None] = rows.field("deletionVector").to_pylist()
    # Some writers store a struct of nulls for a missing vector.
    return [
        vector if vector and any(value is not None for value in vector.values()) else None
        for vector in vectors
    ]


def _vector_ids(vectors: Iterable[Mapping[str, Any] | None]) -> list[str | None]:
    return [None if vector is None else vector_id(vector) for vector in vectors]


def _partitions(column: pa.MapArray) -> tuple[Sequence[int], list[TextPairs]]:
    """An index for each row, and the partitions that it points into; some may be unused."""
    _required(column, "partitionValues", _is_map_of_texts, "a map of strings")
    names, values = column.keys.dictionary_encode(), column.items.dictionary_encode()
    known_names, known_values = names.dictionary.to_pylist(), [*values.dictionary.to_pylist(), None]
    valued = values.indices.to_pylist()
    if values.null_count:  # fill_null would import pandas, which takes a quarter of a second
        valued = [len(known_values) - 1 if place is None else place for place in valued]
    offsets = column.offsets.to_pylist()
    if len(known_names) == 1 and offsets == list(range(len(valued) + 1)):
        return valued, [((known_names[0], value),) for value in known_values]
    entries = list(zip(names.indices.to_pylist(), valued, strict=True))
    known: dict[tuple[tuple[int, int], ...], int] = {}
    places = [known.setdefault(row, len(known)) for row in _rows_of(entries, offsets)]
    return places, [
        tuple((known_names[name], known_values[value]) for name, value in row) for row in known
    ]


def _rows_of(
    entries: Sequence[tuple[int, int]], offsets: Sequence[int]
) -> Iterable[tuple[tuple[int, int], ...]]:
    """The entries of each map. Nearly always, all maps have the same number of entries."""
    width = len(entries) // max(len(offsets) - 1, 1)
    if width and offsets == list(range(0, len(entries) + 1, width)):
        return zip(*[iter(entries)] * width, strict=True)
    return (tuple(entries[start:end]) for start, end in pairwise(offsets))
