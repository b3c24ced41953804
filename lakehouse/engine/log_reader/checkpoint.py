"""A checkpoint's content: classic in one file or several, or V2 with its sidecars.

Only the leaves that a `Layout` needs are read, column by column, since a checkpoint may hold hundreds of thousands of
files. Source: PROTOCOL.md, "Checkpoints" and "V2 Spec".
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, repeat, starmap
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.core.errors import Broken, Refused
from lakehouse.engine.log_reader.actions import Actions, RemovedFile, parse_actions, row_count_of, type_of_pairs, vector_id

_VECTOR = ("storageType", "pathOrInlineDv", "offset", "cardinality")
_ADD = ("path", "size", "modificationTime", "partitionValues", "stats_parsed.numRecords", *(f"deletionVector.{leaf}" for leaf in _VECTOR))
_REMOVE = ("path", "deletionTimestamp", "size", *(f"deletionVector.{leaf}" for leaf in _VECTOR[:3]))
_SMALL = ("metaData", "protocol", "txn", "domainMetadata", "sidecar")


@dataclass(slots=True)
class Checkpoint:
    """What a checkpoint holds; `adds` yield the fields of an `AddedFile` each, as plain tuples, once."""

    adds: list[Iterable[tuple[Any, ...]]] = field(default_factory=list)
    removes: list[Iterable[RemovedFile]] = field(default_factory=list)
    small: Actions = field(default_factory=Actions)


def read_checkpoint(names: Sequence[str], read: Callable[[str], bytes], *, folder: str) -> Checkpoint:
    """The content of the checkpoint that the files `names` make; `folder` is the `_delta_log` they lie in.

    Raises:
        Broken: a file is no checkpoint.
        Refused: a sidecar lies outside the table's own log.
    """
    checkpoint = Checkpoint()
    for name in names:
        _read_into(checkpoint, name, read)
    for sidecar in checkpoint.small.sidecars:
        path = unquote(sidecar)
        if "/" in path:
            raise Refused(
                f"checkpoint {names[0]}: its sidecar {sidecar} is named by more than a file name; accepted: files in {folder}_sidecars"
            )
        _read_into(checkpoint, f"{folder}_sidecars/{path}", read)
    return checkpoint


def _read_into(checkpoint: Checkpoint, name: str, read: Callable[[str], bytes]) -> None:
    data = read(name)
    if name.endswith(".json"):
        actions = parse_actions(data, name)
        checkpoint.adds.append(actions.adds)
        checkpoint.removes.append(actions.removes)
        _merge_small(checkpoint.small, actions)
        return
    try:
        with pq.ParquetFile(pa.BufferReader(data)) as file:
            _read_parquet_into(checkpoint, file)
    except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise Broken(f"checkpoint {name} cannot be read ({type(error).__name__}: {error}): restore or remove the file") from error


def _merge_small(into: Actions, actions: Actions) -> None:
    into.metadata = actions.metadata or into.metadata
    into.protocol = actions.protocol or into.protocol
    into.transactions |= actions.transactions
    into.domains |= actions.domains
    into.sidecars += actions.sidecars


def _read_parquet_into(checkpoint: Checkpoint, file: pq.ParquetFile) -> None:
    top = set(file.schema_arrow.names)
    for kind in _SMALL:
        if kind in top:
            for action in _present(file, kind, ()).to_pylist():
                checkpoint.small.take(kind, _plain(action))
    if "add" in top:
        checkpoint.adds.append(_adds(file))
    if "remove" in top:
        checkpoint.removes.append(_removes(file))


def _present(file: pq.ParquetFile, kind: str, leaves: Iterable[str]) -> pa.StructArray:
    """The rows of one action kind, only their `leaves` (all without any); rows of other kinds are null there and left out."""
    wanted = [f"{kind}.{leaf}" for leaf in leaves] or [kind]
    array = file.read(columns=wanted, use_threads=False).column(kind).combine_chunks()
    return array.filter(array.is_valid()) if array.null_count else array


def _plain(action: dict[str, Any]) -> dict[str, Any]:
    """Maps, which pyarrow gives as lists of pairs, as dictionaries."""
    return {
        name: dict(value) if name in ("configuration", "options") and isinstance(value, list) else value for name, value in action.items()
    }


def _adds(file: pq.ParquetFile) -> Iterable[tuple[Any, ...]]:
    rows = _present(file, "add", _ADD)
    vectors, deleted = _vectors(rows)
    return zip(
        rows.field("path").to_pylist(),
        vectors,
        _numbers(rows.field("size")),
        _numbers(rows.field("modificationTime")),
        _pairs(rows.field("partitionValues")),
        _row_counts(file, rows),
        deleted,
        repeat(False, len(rows)),
        strict=True,
    )


def _removes(file: pq.ParquetFile) -> Iterable[RemovedFile]:
    rows = _present(file, "remove", _REMOVE)
    columns = (
        rows.field("path").to_pylist(),
        _vectors(rows)[0],
        _numbers_or_none(rows, "deletionTimestamp"),
        _numbers_or_none(rows, "size"),
    )
    return starmap(RemovedFile, zip(*columns, repeat(False, len(rows)), strict=True))


def _has(rows: pa.StructArray, name: str) -> bool:
    return rows.type.get_field_index(name) >= 0


def _numbers(column: pa.Array) -> list[int]:
    if column.null_count:
        raise ValueError(f"{column.null_count} file(s) without a size or time")
    return column.to_pylist()


def _numbers_or_none(rows: pa.StructArray, name: str) -> list[int | None]:
    if not _has(rows, name):
        return [None] * len(rows)
    return rows.field(name).to_pylist()


def _vectors(rows: pa.StructArray) -> tuple[list[str | None], list[int]]:
    """Each row's deletion vector id, and how many rows that vector deletes."""
    ids: list[str | None] = [None] * len(rows)
    deleted = [0] * len(rows)
    if not _has(rows, "deletionVector"):
        return ids, deleted
    column = rows.field("deletionVector")
    if column.null_count == len(rows):
        return ids, deleted
    for at, vector in enumerate(column.to_pylist()):
        if vector is not None and vector["storageType"] is not None:
            ids[at] = vector_id(vector)
            deleted[at] = vector.get("cardinality", 0)
    return ids, deleted


def _pairs(column: pa.MapArray) -> Iterable[type_of_pairs]:
    """The partition of each row."""
    pairs = zip(_shared(column.keys), _shared(column.items), strict=True)
    offsets = column.offsets.to_pylist()
    width = len(column.keys) // max(len(column), 1)
    if width and offsets == list(range(0, len(column.keys) + 1, width)):
        return zip(*[pairs] * width, strict=True)
    listed = list(pairs)
    return (tuple(listed[start:end]) for start, end in pairwise(offsets))


def _shared(column: pa.Array) -> Iterable[Any]:
    """The texts of a column that has few distinct ones, each made once."""
    encoded = column.dictionary_encode()
    texts = [*encoded.dictionary.to_pylist(), None]
    return map(texts.__getitem__, encoded.indices.fill_null(len(texts) - 1).to_pylist())


def _row_counts(file: pq.ParquetFile, rows: pa.StructArray) -> list[int | None]:
    """numRecords from the parsed statistics; where those lack it, from the JSON text."""
    counts: list[int | None] = [None] * len(rows)
    if _has(rows, "stats_parsed") and rows.field("stats_parsed").type.num_fields:
        counts = rows.field("stats_parsed").flatten()[0].to_pylist()
    if None in counts:
        texts = _present(file, "add", ("path", "stats"))
        if _has(texts, "stats"):
            return [
                row_count_of(text) if count is None else count for count, text in zip(counts, texts.field("stats").to_pylist(), strict=True)
            ]
    return counts
