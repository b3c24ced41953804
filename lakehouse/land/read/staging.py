"""Reads landed files once, and stages their records as Parquet until their batch is loaded.

A batch consists of its staged records, even if landed files change in the meantime. Until the table
has the batch, the records are in `_lakehouse/staged/<layer>/<name>/<number>-<shape>/`. The shape is
a digest of the declaration, followed by a random id for a new batch, because a load on another
machine may stage a batch of the same number.
"""

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from io import BytesIO
from itertools import chain, islice
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import Broken
from lakehouse.base.text import count_of
from lakehouse.declare.landing import Landing
from lakehouse.delta.columns import field_types
from lakehouse.land.plan.batches import Batch, KnownFile, KnownFiles, LandedFile
from lakehouse.land.plan.choose_files import FileRead
from lakehouse.land.plan.file_text import begins_with, content_digest, mark_text, text_chunks
from lakehouse.land.plan.records import MIB, NOT_UTF_8, Record, TextMark, Unreadable, earlier_names
from lakehouse.land.plan.undeclared import RESCUED, AddedColumn, NewColumns
from lakehouse.land.read.contents import (
    UNPACKED_TIMES,
    compression_of,
    landed_records,
    read_contents,
    restore_first,
)
from lakehouse.store import Store

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


ReadsOfSpark = Mapping[str, FileRead | None]
_NONE: ReadsOfSpark = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """A staged batch.

    `files` are the files that were read or are archived, by name, and `gone` the missing files. All
    other planned files are left to the next batch. `columns` are new columns for undeclared fields.
    """

    batch: Batch
    files: Mapping[str, FileRead]
    gone: frozenset[str]
    columns: tuple[AddedColumn, ...]


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
    own = replace(batch, files=tuple(file for file in batch.files if file.name not in by_spark))
    contents = chain.from_iterable(read_contents(store, own, stops_at_archived=known is None))
    shape = _shape(landing)
    new = NewColumns(landing=landing, known=())
    if known is not None:
        shape += f"-{uuid4().hex[:8]}"
        new = NewColumns(landing=landing, known=known.columns, table_types=known.table_types)
    parts = StagedParts(store, batch_folder(table_key, batch.number, shape), new)
    for name, each in read.items():
        if known is not None and each.undeclared and landing.new_columns != "refuse":
            is_added = landing.new_columns == "add"
            types = each.undeclared if is_added else {RESCUED: "STRING"}
            new.see_types(types, f"{batch.prefix}{name}")
    reader = _FileReader(parts, landing, batch.prefix)
    for content in contents:
        file = content.file
        data = content.data
        if parts.size_bytes > UNPACKED_TIMES * landing.max_batch_bytes:
            break
        if content.archived_in is not None:
            why = restore_first(store, f"{batch.prefix}{file.name}", content.archived_in)
            read[file.name] = FileRead(size_bytes=file.size_bytes, digest="", problem=why)
        elif data is None:
            gone.add(file.name)
        elif known is None:
            read[file.name] = reader.stage_planned(file, data)
        elif file.name not in known.loaded:
            read[file.name] = reader.stage_new(file, data)
        else:
            loaded = known.loaded[file.name]
            read[file.name] = reader.stage_replaced(
                file, data, loaded, reads_whole=known.reads_whole
            )
    batch = replace(
        batch,
        files=tuple(_as_read(file, read.get(file.name)) for file in batch.files),
        part_count=parts.close(),
        record_count=sum(each.record_count for each in read.values()),
        shape=shape,
    )
    columns = new.columns(now_ms())
    return Staged(batch=batch, files=read, gone=frozenset(gone), columns=columns)


def staged_again(
    store: Store, table_key: str, batch: Batch, landing: Landing, by_spark: ReadsOfSpark = _NONE
) -> Batch:
    """A planned batch, staged again if staged parts are missing or the declaration has changed.

    Raises:
        Broken: the batch must be staged again, but a file is gone, has changed (other than by
            growing), or cannot be read with the current declaration.
    """
    is_whole = batch.part_count is not None and all(map(store.stat, part_names(table_key, batch)))
    if is_whole and batch.shape.partition("-")[0] == _shape(landing):
        return batch
    own = replace(batch, files=tuple(file for file in batch.files if not file.by_spark))
    as_planned = {
        each.file.name: _find_planned(each.file, each.data)[0]
        for each in chain.from_iterable(read_contents(store, own, stops_at_archived=True))
        if each.data is not None
    }
    _check_unchanged(table_key, own, as_planned)  # before anything is staged
    staged = stage(store, table_key, batch, landing, by_spark=by_spark)
    try:
        _check_unchanged(table_key, batch, staged.files)
    except Broken:
        # Otherwise the next try would mistake these parts for the batch.
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


def _find_planned(file: LandedFile, data: bytes) -> tuple[FileRead, int | None]:
    """Compares the current content of a file with the content that was planned.

    Returns the size and digest of the content to stage, and the byte of the text at which it ends.
    If the file only grew, these are the planned size, digest and end. Otherwise, size and digest
    are those of the current content, and the end is `None`, because the whole text is staged.
    """
    digest = content_digest(data)
    is_planned = (file.size_bytes, file.digest or digest) == (len(data), digest)
    chunks = text_chunks(data, compression_of(file.name, data))
    if is_planned or not _begins_with(chunks, file.text):
        return FileRead(size_bytes=len(data), digest=digest), None
    return FileRead(size_bytes=file.size_bytes, digest=file.digest), file.text.size_bytes


def _begins_with(chunks: Iterator[bytes], mark: TextMark) -> bool:
    try:
        return begins_with(chunks, mark)
    except (EOFError, OSError, zlib.error):
        return False  # the content cannot be unpacked


class _FileReader:
    """Stages the records of one batch, file by file."""

    def __init__(self, parts: StagedParts, landing: Landing, prefix: str) -> None:
        self._parts = parts
        self._landing = landing
        self._prefix = prefix

    def stage_new(self, file: LandedFile, data: bytes) -> FileRead:
        """Stages a file whose name was never loaded."""
        read = FileRead(size_bytes=len(data), digest=content_digest(data))
        return self._stage(file, data, read)

    def stage_planned(self, file: LandedFile, data: bytes) -> FileRead:
        """Stages a file of a planned batch. A change shows in the size or digest of the result."""
        read, until_byte = _find_planned(file, data)
        read = replace(read, loaded_records=file.loaded_records)
        return self._stage(file, data, read, until_byte)

    def stage_replaced(
        self, file: LandedFile, data: bytes, loaded: KnownFile, *, reads_whole: bool
    ) -> FileRead:
        """Stages a file's new records (or all), if the file begins with its loaded content."""
        read = FileRead(size_bytes=len(data), digest=content_digest(data))
        if read.digest == loaded.digest or self._landing.format not in ("json", "csv"):
            return read
        if not _begins_with(text_chunks(data, compression_of(file.name, data)), loaded.text):
            return read
        try:
            loaded_records = self._count_loaded(file, data, loaded.text.size_bytes)
        except Unreadable as error:
            return replace(read, continues=True, problem=str(error))
        if loaded_records is None:
            return read
        skipped = 0 if reads_whole else loaded_records
        return self._stage(file, data, replace(read, continues=True, loaded_records=skipped))

    def _count_loaded(self, file: LandedFile, data: bytes, until_byte: int) -> int | None:
        """The number of records up to a byte of the text; `None` if it is not the end of a record.

        Raises:
            Unreadable: the whole file cannot be read.
        """
        all_records = landed_records(file.name, data, self._landing)
        expected = next(all_records, None)  # an error is raised before the first record
        count = 0
        try:
            for record in landed_records(file.name, data, self._landing, until_byte):
                if record != expected:
                    return None
                count += 1
                expected = next(all_records, None)
        except Unreadable:
            return None  # the loaded part cannot be read with the current declaration
        return count

    def _stage(
        self, file: LandedFile, data: bytes, read: FileRead, until_byte: int | None = None
    ) -> FileRead:
        landing = self._landing
        path = f"{self._prefix}{file.name}"
        count = 0
        try:
            records = landed_records(file.name, data, landing, until_byte)
            for record in islice(records, read.loaded_records, None):
                self._parts.add(path, file.modified_ms, record, read.digest)
                count += 1
        except Unreadable as error:
            return replace(read, problem=str(error))
        read = replace(read, record_count=count)
        compression = compression_of(file.name, data)
        if compression is None or landing.format not in ("json", "csv"):
            return read
        text = mark_text(text_chunks(data, compression))
        return replace(read, text_bytes=text.size_bytes, text_digest=text.digest)
