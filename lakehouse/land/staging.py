"""Reads landed files once, and stages their records as Parquet until their batch is loaded.

A batch consists of its staged records, even if landed files change in the meantime. Until the table
has the batch, the records are in `_lakehouse/staged/<layer>/<name>/<number>-<shape>/`. The shape is
a digest of the declaration, followed by a random id, because a load on another machine may stage a
batch of the same number.
"""

import json
import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from io import BytesIO
from itertools import repeat
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.base.errors import Broken
from lakehouse.base.text import count_of
from lakehouse.declare.landing import Landing
from lakehouse.delta.columns import field_names, field_types
from lakehouse.land.decode import DecodedFile, TableShape, compression_of, decoded_file
from lakehouse.land.parse_lines import ROW_SCHEMA, STAGED_SCHEMA
from lakehouse.land.plan.batches import Batch, KnownFiles, LandedFile
from lakehouse.land.plan.choose_files import FileRead
from lakehouse.land.plan.file_text import (
    content_digest,
    read_records,
    simple_lines,
)
from lakehouse.land.plan.records import (
    MIB,
    NOT_UTF_8,
    CsvFields,
    NewColumns,
    Record,
    Unreadable,
    earlier_names,
    present_names,
)
from lakehouse.store import ArchivedError, Store, at_once

_TYPES = {
    "STRING": pa.string(),
    "BIGINT": pa.int64(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
}
_SCHEMA = pa.schema(
    [(name, _TYPES[kind]) for name, kind in map(str.split, STAGED_SCHEMA.split(", "))]
)
_SHAPE = b"lakehouse.shape"
_FIELDS = b"lakehouse.fields"
_FOLDER = "_lakehouse/staged"
# A part is in memory until it reaches one of these limits. Later, one Spark task reads it.
_PART_BYTES = 16 * MIB
_PART_RECORDS = 500_000


def part_names(table_key: str, batch: Batch) -> list[str]:
    """The names of the objects with the staged records of a batch."""
    folder = f"{_FOLDER}/{table_key}/{batch.number}-{batch.shape}"
    return [f"{folder}/{part:05}.parquet" for part in range(batch.part_count or 0)]


def clear_staged(store: Store, table_key: str, last_loaded: int) -> None:
    """Deletes the staged parts of the batches that the table has, up to number `last_loaded`.

    Another process may be staging the next batch now.
    """
    folder = f"{_FOLDER}/{table_key}/"
    loaded = list[str]()
    for file in store.list(folder.rstrip("/")):
        number = file.name.removeprefix(folder).partition("/")[0].partition("-")[0]
        if int(number) <= last_loaded:
            loaded.append(file.name)
    store.delete(loaded)


def value_columns(shape: TableShape) -> list[str]:
    """The names of the staged columns with a row's values."""
    return [f"c{place}" for place in range(len(shape.names))]


def staged_shape(schema: pa.Schema) -> TableShape:
    """The shape of the files whose rows are in a part with this schema."""
    names, is_gregorian = json.loads(schema.metadata[_SHAPE])
    return TableShape(tuple(names), tuple(schema.types[-len(names) :]), is_gregorian)


def staged_fields(metadata: Mapping[bytes, bytes]) -> CsvFields:
    """The fields of the CSV files whose records are in a part with this metadata."""
    names, has_header = json.loads(metadata[_FIELDS])
    return CsvFields(tuple(names), has_header)


class StagedParts:
    """Stages the records of one batch, file by file, in parts that are stored when they are full.

    `size_bytes` is the size of the contents of all records so far.
    """

    def __init__(self, store: Store, folder: str, prefix: str, new_columns: NewColumns) -> None:
        self._landing = new_columns.landing
        self._new_columns = new_columns
        self._store = store
        self._folder = folder
        self._prefix = prefix
        self._count = 0
        self._buffered_bytes = 0
        self._buffered_records = 0
        self._rows = defaultdict[CsvFields | None, list[tuple[str | int | None, ...]]](list)
        self._tables = defaultdict[TableShape, list[pa.Table]](list)
        self.size_bytes = 0

    def add(self, file: LandedFile, record: Record) -> None:
        """Adds a record of a text file.

        Bytes that are not UTF-8 are escaped, and make the record bad.
        """
        try:
            text = record.content.decode()
            problem = record.problem
        except UnicodeDecodeError:
            text = record.content.decode("utf-8", "backslashreplace")
            problem = record.problem or NOT_UTF_8
        if record.fields is not None and record.fields not in self._rows:
            self._new_columns.see_columns(record.fields.names)
        self._rows[record.fields].append(
            (
                f"{self._prefix}{file.name}",
                record.line,
                file.modified_ms * 1_000,
                text,
                problem,
                record.undeclared,
                file.digest,
                record.event,
            )
        )
        if record.undeclared is not None:
            self._new_columns.see(record.undeclared)
        more_bytes = len(record.undeclared or "") + len(record.event or "")
        self._record_added(1, len(record.content), more_bytes)

    def _add_lines(self, file: LandedFile, fields: CsvFields | None, lines: Sequence[str]) -> int:
        """Adds the records of a text (`simple_lines`), all at once. Returns their number."""
        header_lines = 0 if fields is None else int(fields.has_header)
        record_count = len(lines) - header_lines
        if not record_count:
            return 0
        if fields is not None:
            self._new_columns.see_columns(fields.names)
        columns = (
            repeat(f"{self._prefix}{file.name}"),
            range(header_lines + 1, len(lines) + 1),
            repeat(file.modified_ms * 1_000),
            lines[header_lines:],
            repeat(None),
            repeat(None),
            repeat(file.digest),
            repeat(None),
        )
        self._rows[fields].extend(zip(*columns, strict=False))
        self._record_added(record_count, file.size_bytes)
        return record_count

    def _record_added(self, records: int, content_bytes: int, more_bytes: int = 0) -> None:
        """Counts added records, and stores a part that is full."""
        self._buffered_bytes += content_bytes + more_bytes
        self._buffered_records += records
        self.size_bytes += content_bytes
        if self._buffered_bytes >= _PART_BYTES or self._buffered_records >= _PART_RECORDS:
            self._put()

    def add_file(self, file: LandedFile, decoded: DecodedFile) -> int:
        """Adds the rows of a Parquet or Avro file. Returns their number."""
        shape = decoded.shape
        row_count = 0
        filled = set[int]()
        for columns in decoded.batches:
            count = len(columns[0])
            origin = [
                pa.repeat(f"{self._prefix}{file.name}", count),
                pa.array(range(row_count + 1, row_count + count + 1), pa.int64()),
                pa.repeat(pa.scalar(file.modified_ms * 1_000, _TYPES["TIMESTAMP"]), count),
                pa.repeat(file.digest, count),
            ]
            row_count += count
            filled |= {place for place, each in enumerate(columns) if each.null_count < count}
            names = [*field_names(ROW_SCHEMA), *value_columns(shape)]
            table = pa.table([*origin, *columns], names=names)
            self._tables[shape].append(table)
            self._record_added(0, table.nbytes)
        self._new_columns.see_columns(shape.names[place] for place in sorted(filled))
        return row_count

    def read(self, file: LandedFile, data: bytes, known: KnownFiles | None) -> FileRead:
        """Stages a file as it was planned, or a new file whose records may be loaded.

        A planned file may have grown. Any other change shows in the size or digest of the result.
        """
        if file.digest and content_digest(data[: file.size_bytes]) == file.digest:
            data = data[: file.size_bytes]
        file = replace(file, size_bytes=len(data), digest=content_digest(data))
        read = FileRead(file=file)
        if known is not None and not known.may_load(file):
            return read
        landing = self._landing
        limit = UNPACKED_TIMES * landing.max_file_bytes
        count = 0
        try:
            if landing.format in ("parquet", "avro"):
                decoded = decoded_file(data, landing.format, limit)
                present_names(decoded.shape.names, landing)
                return replace(read, record_count=self.add_file(file, decoded))
            compression = compression_of(file.name, data)
            simple = None if compression else simple_lines(data, landing)
            if simple is not None:
                return replace(read, record_count=self._add_lines(file, *simple))
            records = read_records(data, landing, compression=compression, max_content_bytes=limit)
            for record in records:
                self.add(file, record)
                count += 1
        except Unreadable as error:
            return replace(read, problem=str(error))
        return replace(read, record_count=count)

    def close(self) -> int:
        """Stores the last parts; returns the number of parts."""
        self._put()
        return self._count

    def _put(self) -> None:
        for fields, rows in self._rows.items():
            part = pa.table([*zip(*rows, strict=True)], schema=_SCHEMA)
            self._put_part(part.replace_schema_metadata({_FIELDS: json.dumps(fields)}))
        for shape, tables in self._tables.items():
            metadata = {_SHAPE: json.dumps([shape.names, shape.is_gregorian])}
            self._put_part(pa.concat_tables(tables).replace_schema_metadata(metadata))
        self._rows.clear()
        self._tables.clear()
        self._buffered_bytes = 0
        self._buffered_records = 0

    def _put_part(self, part: pa.Table) -> None:
        buffer = BytesIO()
        pq.write_table(part, buffer)
        self._store.put(f"{self._folder}/{self._count:05}.parquet", buffer.getvalue())
        self._count += 1


# The files that were read, by name; `None` if a file is gone.
Reads = Mapping[str, FileRead | None]
_NONE: Reads = {}


def stage(
    store: Store,
    table_key: str,
    batch: Batch,
    landing: Landing,
    known: KnownFiles | None = None,
    by_spark: Reads = _NONE,
) -> tuple[Batch, Reads]:
    """Reads the files of a batch that Spark does not read itself, and stages their records.

    Returns the staged batch, with columns for new undeclared fields, and its files. Without
    `known`, the batch is an earlier one, which is staged as it was planned. The last files are left
    to the next batch if too many bytes are unpacked. `by_spark` are the other files.
    """
    reads = dict(by_spark)
    own = [file for file in batch.files if file.name not in by_spark]
    # Random, because parts of an earlier try may have other contents.
    shape = f"{_shape(landing)}-{uuid4().hex[:8]}"
    names = known or KnownFiles(loaded={})
    new = NewColumns(landing=landing, known=names.columns, table_types=names.table_types)
    folder = f"{_FOLDER}/{table_key}/{batch.number}-{shape}"
    parts = StagedParts(store, folder, batch.prefix, new)
    for read in by_spark.values():
        if read is not None:
            new.see_columns(read.columns)
    for file, content in _contents(store, batch.prefix, own):
        if parts.size_bytes > UNPACKED_TIMES * landing.max_batch_bytes:
            break
        if isinstance(content, bytes):
            content = parts.read(file, content, known)
        reads[file.name] = content
    present = {name: read for name, read in reads.items() if read is not None}
    files = [present[file.name].file if file.name in present else file for file in batch.files]
    staged = replace(
        batch,
        files=tuple(files),
        part_count=parts.close(),
        record_count=sum(read.record_count for read in present.values()),
        columns=batch.columns if known is None else new.columns,
        shape=shape,
    )
    return staged, reads


def staged_again(
    store: Store, table_key: str, batch: Batch, landing: Landing, by_spark: Reads = _NONE
) -> Batch:
    """A planned batch, staged again if staged parts are missing or the declaration has changed.

    Raises:
        Broken: the batch must be staged again, but a file is gone, has changed (other than by
            growing), or cannot be read with the current declaration.
    """
    is_whole = batch.part_count is not None and all(map(store.stat, part_names(table_key, batch)))
    if is_whole and batch.shape.partition("-")[0] == _shape(landing):
        return batch
    staged, reads = stage(store, table_key, batch, landing, by_spark=by_spark)
    try:
        _check_unchanged(table_key, batch, reads)
    except Broken:
        # The load may fail again and again, and would leave parts each time.
        store.delete(part_names(table_key, staged))
        raise
    return staged


def _shape(landing: Landing) -> str:
    """A digest of everything that decides how a record is staged."""
    csv = (landing.csv, landing.encoding, landing.null_value) if landing.records_are_csv else ()
    declared = (
        field_types(landing.schema),
        landing.format,
        csv,
        landing.new_columns,
        landing.changes,
    )
    names = sorted(earlier_names(landing).items())
    staged = f"{STAGED_SCHEMA}{declared}{names}"
    return blake2b(staged.encode(), digest_size=8).hexdigest()


def _check_unchanged(table_key: str, batch: Batch, reads: Reads) -> None:
    planned = (
        f"load of {table_key}: batch {batch.number} was planned with "
        f"{count_of(len(batch.files), 'file')} and is not loaded"
    )
    present = {name: read for name, read in reads.items() if read is not None}
    missing = [file.name for file in batch.files if file.name not in present]
    if missing:
        raise Broken(
            f"{planned}. Files gone from {batch.prefix}: {len(missing)}, first {missing[0]!r}. "
            "Either put these files back and load again, or restore the declaration with which the "
            "batch was planned"
        )
    for file in batch.files:
        current = present[file.name].file
        problem = present[file.name].problem
        if current.size_bytes != file.size_bytes or file.digest not in ("", current.digest):
            raise Broken(
                f"{planned}. Its file {file.name!r} has changed since ({file.size_bytes} bytes "
                f"then, {current.size_bytes} now), and the quarantine may have its old lines. "
                "Restore the old file, and land only new records, in a file with another name"
            )
        if problem is not None:
            raise Broken(
                f"{planned}. Its file {file.name!r} could be read then and cannot be read now: "
                f"{problem}. Restore the declaration, load the batch, and then change the "
                "declaration"
            )


_READ_AT_ONCE_BYTES = 32 * MIB
_READ_AT_ONCE_FILES = 256
# A file may unpack to this multiple of the size limit of landed files.
UNPACKED_TIMES = 4


def _contents(
    store: Store, prefix: str, files: Sequence[LandedFile]
) -> Iterator[tuple[LandedFile, bytes | FileRead | None]]:
    """The files in order, each with its bytes.

    `None` if the file is missing, or its problem if it is archived.

    Raises:
        Refused: a permission is missing.
    """

    def content(file: LandedFile) -> bytes | FileRead | None:
        path = f"{prefix}{file.name}"
        try:
            return store.read(path)
        except FileNotFoundError:
            return None
        except ArchivedError as error:
            key = shlex.quote(f"{store.prefix}{path}")
            problem = (
                f"it is archived in storage class {error.storage_class}, in which no object can be "
                f"read. Use `aws s3api restore-object --bucket {store.bucket} --key {key} "
                "--restore-request Days=7`, then `lakehouse quarantine retry`"
            )
            return FileRead(file=file, problem=problem)

    for group in _read_at_once(files):
        yield from zip(group, at_once(content, group), strict=True)


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
