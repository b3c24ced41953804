"""Reads landed files once, and stages their records as Parquet until their batch is loaded.

A batch consists of its staged records, even if landed files change in the meantime. Until the table
has the batch, the records are in `_lakehouse/staged/<layer>/<name>/<number>-<shape>/`. The shape is
a digest of the declaration, followed by a random id for a new batch, because a load on another
machine may stage a batch of the same number.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from io import BytesIO
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.base.errors import Broken
from lakehouse.base.text import count_of
from lakehouse.declare.landing import Landing
from lakehouse.delta.columns import field_names, field_types
from lakehouse.land.plan.batches import Batch, KnownFiles, LandedFile
from lakehouse.land.plan.choose_files import FileRead
from lakehouse.land.plan.file_text import (
    GZIP,
    Compression,
    content_digest,
    detect_format,
    read_records,
)
from lakehouse.land.plan.records import (
    MIB,
    NOT_UTF_8,
    Record,
    Unreadable,
    earlier_names,
    present_names,
)
from lakehouse.land.plan.undeclared import NewColumns
from lakehouse.land.read.tables import DecodedFile, TableShape, decoded_file
from lakehouse.store import Store

# The staged columns of a text record, as Spark reads them.
STAGED_SCHEMA = (
    "source_file STRING, line BIGINT, landed_at TIMESTAMP, raw STRING, problem STRING, "
    "undeclared STRING, digest STRING, event STRING"
)
# The first staged columns of a row of Parquet. The row's values follow, as c0, c1, ….
ROW_SCHEMA = "source_file STRING, line BIGINT, landed_at TIMESTAMP, digest STRING"
_TYPES = {
    "STRING": pa.string(),
    "BIGINT": pa.int64(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
}
_SCHEMA = pa.schema(
    [(name, _TYPES[kind]) for name, kind in map(str.split, STAGED_SCHEMA.split(", "))]
)
_SHAPE = b"lakehouse.shape"
_FOLDER = "_lakehouse/staged"
# A part is in memory until it reaches one of these limits. Later, one Spark task reads it.
_PART_BYTES = 16 * MIB
_PART_RECORDS = 500_000
_READ_AT_ONCE_BYTES = 32 * MIB
_READ_AT_ONCE_FILES = 256
# A file may unpack to this multiple of the size limit of landed files.
_UNPACKED_TIMES = 4
_CHUNK_BYTES = 4 * MIB


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


def value_columns(shape: TableShape) -> list[str]:
    """The names of the staged columns with a row's values."""
    return [f"c{place}" for place in range(len(shape.names))]


def staged_shape(schema: pa.Schema) -> TableShape:
    """The shape of the files whose rows are in a part with this schema."""
    content = json.loads((schema.metadata or {})[_SHAPE])
    names = tuple(content["names"])
    return TableShape(names, tuple(schema.types[-len(names) :]), content["is_gregorian"])


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
        self._tables = defaultdict[TableShape, list[pa.Table]](list)
        self.size_bytes = 0

    def add(self, path: str, modified_ms: int, record: Record, digest: str) -> None:
        """Adds a record of a text file with this path, time and digest.

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
            self._new_columns.see(record.undeclared)
        more_bytes = len(record.undeclared or "") + len(record.event or "")
        self._buffered_bytes += len(record.content) + more_bytes
        self.size_bytes += len(record.content)
        if self._buffered_bytes >= _PART_BYTES or len(self._rows) == _PART_RECORDS:
            self._put()

    def add_file(self, path: str, modified_ms: int, decoded: DecodedFile, digest: str) -> int:
        """Adds the rows of a Parquet file. Returns their number."""
        shape = decoded.shape
        row_count = 0
        filled = set[int]()
        for columns in decoded.batches:
            count = len(columns[0])
            origin = [
                pa.repeat(path, count),
                pa.array(range(row_count + 1, row_count + count + 1), pa.int64()),
                pa.repeat(pa.scalar(modified_ms * 1_000, _TYPES["TIMESTAMP"]), count),
                pa.repeat(digest, count),
            ]
            row_count += count
            filled |= {place for place, each in enumerate(columns) if each.null_count < count}
            names = [*field_names(ROW_SCHEMA), *value_columns(shape)]
            table = pa.table([*origin, *columns], names=names)
            self._tables[shape].append(table)
            self._buffered_bytes += table.nbytes
            self.size_bytes += table.nbytes
            if self._buffered_bytes >= _PART_BYTES:
                self._put()
        self._new_columns.see_columns(shape.names[place] for place in sorted(filled))
        return row_count

    def close(self) -> int:
        """Stores the last parts; returns the number of parts."""
        self._put()
        return self._count

    def _put(self) -> None:
        if self._rows:
            self._put_part(pa.table([*zip(*self._rows, strict=True)], schema=_SCHEMA))
        for shape, tables in self._tables.items():
            content = {"names": shape.names, "is_gregorian": shape.is_gregorian}
            metadata = {_SHAPE: json.dumps(content)}
            self._put_part(pa.concat_tables(tables).replace_schema_metadata(metadata))
        self._rows = []
        self._tables.clear()
        self._buffered_bytes = 0

    def _put_part(self, part: pa.Table) -> None:
        buffer = BytesIO()
        pq.write_table(part, buffer)
        self._store.put(f"{self._folder}/{self._count:05}.parquet", buffer.getvalue())
        self._count += 1


ReadsOfSpark = Mapping[str, FileRead | None]
_NONE: ReadsOfSpark = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """A staged batch.

    `files` are the files that were read, by name, and `gone` the missing files. All other planned
    files are left to the next batch. `columns` are new columns for undeclared fields.
    """

    batch: Batch
    files: Mapping[str, FileRead]
    gone: frozenset[str]
    columns: tuple[str, ...]


def stage(
    store: Store,
    table_key: str,
    batch: Batch,
    landing: Landing,
    known: KnownFiles | None = None,
    by_spark: ReadsOfSpark = _NONE,
) -> Staged:
    """Reads the files of a batch that Spark does not read itself, and stages their records.

    Without `known`, the batch is an earlier one, which is staged as it was planned. The last files
    are left to the next batch if too many bytes are unpacked. `by_spark` are the other files; a
    file that is gone is `None`.
    """
    read = {name: each for name, each in by_spark.items() if each is not None}
    gone = {name for name, each in by_spark.items() if each is None}
    # Random, because parts of an earlier try may be those of other contents.
    shape = f"{_shape(landing)}-{uuid4().hex[:8]}"
    new = NewColumns(landing=landing, known=())
    if known is not None:
        new = NewColumns(landing=landing, known=known.columns, table_types=known.table_types)
    parts = StagedParts(store, batch_folder(table_key, batch.number, shape), new)
    for each in read.values():
        new.see_columns(each.columns)
    own = [file for file in batch.files if file.name not in by_spark]
    for file, data in _contents(store, batch.prefix, own):
        if parts.size_bytes > _UNPACKED_TIMES * landing.max_batch_bytes:
            break
        if data is None:
            gone.add(file.name)
            continue
        unread = FileRead(size_bytes=len(data), digest=content_digest(data))
        is_loaded = known is not None and known.is_loaded(file.name, unread.digest)
        path = f"{batch.prefix}{file.name}"
        read[file.name] = unread if is_loaded else _staged(parts, path, file, data, unread, landing)
    batch = replace(
        batch,
        files=tuple(_as_read(file, read.get(file.name)) for file in batch.files),
        part_count=parts.close(),
        record_count=sum(each.record_count for each in read.values()),
        shape=shape,
    )
    return Staged(batch=batch, files=read, gone=frozenset(gone), columns=new.columns)


def staged_again(
    store: Store, table_key: str, batch: Batch, landing: Landing, by_spark: ReadsOfSpark = _NONE
) -> Batch:
    """A planned batch, staged again if staged parts are missing or the declaration has changed.

    Raises:
        Broken: the batch must be staged again, but a file is gone, has changed, or cannot be read
            with the current declaration.
    """
    is_whole = batch.part_count is not None and all(map(store.stat, part_names(table_key, batch)))
    if is_whole and batch.shape.partition("-")[0] == _shape(landing):
        return batch
    staged = stage(store, table_key, batch, landing, by_spark=by_spark)
    try:
        _check_unchanged(table_key, batch, staged.files)
    except Broken:
        # The load may fail again and again, and would leave parts each time.
        store.delete(part_names(table_key, staged.batch))
        raise
    return staged.batch


def _as_read(file: LandedFile, read: FileRead | None) -> LandedFile:
    """The file, marked if Spark reads it."""
    if read is None or not read.by_spark:
        return file
    return replace(file, by_spark=True, digest=read.digest, blocks=read.blocks)


def _shape(landing: Landing) -> str:
    """A digest of everything in the declaration that decides how a record is staged."""
    csv = (landing.csv, landing.encoding, landing.null_value) if landing.records_are_csv else ()
    declared = (
        field_types(landing.schema),
        landing.format,
        csv,
        landing.new_columns,
        landing.changes,
    )
    names = sorted(earlier_names(landing).items())
    return blake2b(f"{declared}{names or ''}".encode(), digest_size=8).hexdigest()


def _check_unchanged(table_key: str, batch: Batch, reads: Mapping[str, FileRead]) -> None:
    count = count_of(len(batch.files), "file")
    planned = (
        f"load of {table_key}: batch {batch.number} was planned with {count} and is not loaded"
    )
    missing = [file.name for file in batch.files if file.name not in reads]
    if missing:
        raise Broken(
            f"{planned}. Files gone from {batch.prefix}: {len(missing)}, first {missing[0]!r}. "
            "Either put these files back and load again, or restore the declaration with which the "
            "batch was planned"
        )
    for file in batch.files:
        current = reads[file.name]
        if current.size_bytes != file.size_bytes or file.digest not in ("", current.digest):
            raise Broken(
                f"{planned}. Its file {file.name!r} has changed since ({file.size_bytes} bytes "
                f"then, {current.size_bytes} now), and the quarantine may have its old lines. "
                "Restore the old file, and land only new records, in a file with another name"
            )
        if current.problem is not None:
            raise Broken(
                f"{planned}. Its file {file.name!r} could be read then and cannot be read now: "
                f"{current.problem}. Restore the declaration, load the batch, and then change the "
                "declaration"
            )


def _staged(
    parts: StagedParts, path: str, file: LandedFile, data: bytes, read: FileRead, landing: Landing
) -> FileRead:
    """Stages the records of a file. Returns their number, or why there are none."""
    count = 0
    try:
        if landing.format == "parquet":
            decoded = decoded_file(data, _UNPACKED_TIMES * landing.max_file_bytes)
            present_names(decoded.shape.names, landing)
            count = parts.add_file(path, file.modified_ms, decoded, read.digest)
            return replace(read, record_count=count)
        records = read_records(
            data,
            landing,
            compression=compression_of(file.name, data),
            max_content_bytes=_UNPACKED_TIMES * landing.max_file_bytes,
        )
        for record in records:
            parts.add(path, file.modified_ms, record, read.digest)
            count += 1
    except Unreadable as error:
        return replace(read, problem=str(error))
    return replace(read, record_count=count)


def compression_of(name: str, data: bytes) -> Compression | None:
    """The compression of a file, by its content or else by its name."""
    by_content = _BY_CONTENT.get(detect_format(data) or "")
    return by_content or _BY_ENDING.get(name.rpartition(".")[2].lower())


def _unzstd(data: bytes) -> Iterator[bytes]:
    """Decompresses zstd bytes of one or more frames."""
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                yield chunk
    except pa.ArrowException as error:
        raise OSError(str(error)) from error


ZSTD = Compression("zstd", _unzstd)
_BY_CONTENT = {"gzip": GZIP, "zstd": ZSTD}
_BY_ENDING = {"gz": GZIP, "zst": ZSTD}


def _contents(
    store: Store, prefix: str, files: Sequence[LandedFile]
) -> Iterator[tuple[LandedFile, bytes | None]]:
    """The files in order with their contents; `None` for a file that is gone."""
    for group in _read_at_once(files):
        names = [f"{prefix}{file.name}" for file in group]
        try:
            contents: list[bytes | None] = [*store.read_many(names)]
        except FileNotFoundError:
            contents = [_read_if_present(store, name) for name in names]
        yield from zip(group, contents, strict=True)


def _read_if_present(store: Store, name: str) -> bytes | None:
    try:
        return store.read(name)
    except FileNotFoundError:
        return None


def _read_at_once(files: Sequence[LandedFile]) -> Iterator[list[LandedFile]]:
    """Groups the files up to a bounded size; a file above that size is alone in its group."""
    group = list[LandedFile]()
    size_bytes = 0
    for file in files:
        is_full = len(group) == _READ_AT_ONCE_FILES
        if group and (is_full or size_bytes + file.size_bytes > _READ_AT_ONCE_BYTES):
            yield group
            group = []
            size_bytes = 0
        group.append(file)
        size_bytes += file.size_bytes
    if group:
        yield group
