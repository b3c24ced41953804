"""Copies files into an archive, and compares the copies with their originals.

The size of each copy, and the row count in its footer, are always compared. In addition:

- On a disk, the content is read before and after the copy, and its SHA-256 is compared.
- On S3, an object is copied only if it still has the recorded ETag. The copy may have another ETag
  if it is encrypted or was uploaded in parts. In that case, the ends of both objects are compared,
  because they contain the footer, with the sizes and statistics of all columns.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from lakehouse.core.archive.records import ArchivedFile, ArchiveOperation
from lakehouse.core.delta.paths import name_in_table
from lakehouse.core.errors import Broken
from lakehouse.core.text import count_of, first_names
from lakehouse.engine.lake import Lake
from lakehouse.engine.store import LOCAL, Store

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.parquet import FileMetaData

_REQUESTS_AT_ONCE = 16
# The first read of a file's end has this size. Nearly all footers are smaller.
_FOOTER_BYTES = 64 * 1024
# A Parquet file ends with the length of its footer (four bytes) and `PAR1`.
_LENGTH_BYTES = 8

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """A file to copy into the archive.

    `name` is its name in the lake, and `archived` the name of its copy. `path` is recorded as its
    source. `row_count` is `None` if the log lacks it.
    """

    path: str
    name: str
    archived: str
    size_bytes: int
    row_count: int | None


def stored_name(table_key: str, path: str) -> str:
    """The name in the lake of a file with this path in its table's log."""
    name = name_in_table(path)
    assert name is not None, f"{path} lies outside {table_key}"
    return f"{table_key}/{name}"


def measured(store: Store, sources: Sequence[SourceFile]) -> list[ArchivedFile]:
    """The files to record, with their checksums. A missing row count is read from the footer.

    Raises:
        Broken: a file is missing, or does not have the size in the log.
    """
    return _in_parallel(lambda source: _measured(store, source), sources)


def copy_files(lake: Lake, table_key: str, operation: ArchiveOperation) -> None:
    """Copies the files of an operation that have no copy of the same size yet.

    Raises:
        Broken: an original is missing, or (on S3) was written again after the operation's record.
    """

    def copy(file: ArchivedFile) -> None:
        store = lake.store
        name = source_name(table_key, file)
        existing_copy = store.stat(file.archived)
        if existing_copy is not None and existing_copy.size_bytes == file.size_bytes:
            return  # an earlier run copied the file; there are no partial copies
        original = store.stat(name)
        if original is None:
            raise Broken(f"archive of {table_key}: {name} is missing. Check the table")
        if store.bucket != LOCAL:
            if store.checksum(original) != file.checksum:
                raise Broken(
                    f"archive of {table_key}: {name} was written again after the operation was"
                    " recorded, although a table's files never change. Check the table"
                )
            original = replace(original, storage_class=operation.storage_class)
        # A lifecycle rule that selects the table's files by a tag must not apply to their copies.
        store.copy(original, file.archived, keep_tags=False)

    _in_parallel(copy, operation.files)


def compare_copies(lake: Lake, table_key: str, operation: ArchiveOperation) -> None:
    """Compares size, content and row count of each copy with the record.

    Raises:
        Broken: some copies differ. They are deleted, so that the next run copies them again.
    """
    reasons = _in_parallel(lambda file: _difference(lake.store, table_key, file), operation.files)
    differences = dict[str, str]()
    for file, reason in zip(operation.files, reasons, strict=True):
        if reason:
            differences[file.archived] = reason
    if differences:
        lake.store.delete(differences)
        first = min(differences)
        raise Broken(
            f"archive of {table_key}: {count_of(len(differences), 'archived file')} differed from"
            f" the original, for example {first_names([first])} ({differences[first]}). The table"
            " is unchanged, and these copies were deleted. Check the storage, then run the archive"
            " again"
        )


def schemas_in_footers(store: Store, names: Iterable[str]) -> list["pa.Schema"]:
    """The schema of each of these Parquet files.

    Raises:
        Broken: a file has no readable footer.
    """
    return _in_parallel(lambda name: _footer(store, name).schema.to_arrow_schema(), names)


def row_count_in_footer(store: Store, name: str) -> int:
    """The number of rows that a Parquet file's footer states.

    Raises:
        Broken: the file has no readable footer.
    """
    return _footer(store, name).num_rows


def _end_of(store: Store, name: str) -> bytes:
    """The end of a Parquet file, including its complete footer."""
    end = store.read_end(name, _FOOTER_BYTES)
    needed = int.from_bytes(end[-_LENGTH_BYTES:-4], "little") + _LENGTH_BYTES
    if needed > len(end) and len(end) == _FOOTER_BYTES:
        end = store.read_end(name, needed)
    return end


def _footer(store: Store, name: str) -> "FileMetaData":
    return _parsed(_end_of(store, name), name)


def _parsed(end: bytes, name: str) -> "FileMetaData":
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_metadata(pa.BufferReader(end))
    except (pa.ArrowInvalid, OSError) as error:
        raise Broken(
            f"{name} is not a readable Parquet file ({error}). Check the storage"
        ) from error


def source_name(table_key: str, file: ArchivedFile) -> str:
    """The name in the lake of the file that is copied."""
    if file.source.startswith("_lakehouse/"):
        return file.source  # Spark wrote this file (`rewritten`)
    return stored_name(table_key, file.source)


def _measured(store: Store, source: SourceFile) -> ArchivedFile:
    stored = store.stat(source.name)
    if stored is None or stored.size_bytes != source.size_bytes:
        actual = "missing" if stored is None else f"{stored.size_bytes} bytes long"
        raise Broken(
            f"archive: {source.name} is {actual}, but the log says {source.size_bytes} bytes. Check"
            " the table"
        )
    row_count = source.row_count
    if row_count is None:
        row_count = row_count_in_footer(store, source.name)
    return ArchivedFile(
        source=source.path,
        archived=source.archived,
        size_bytes=source.size_bytes,
        row_count=row_count,
        checksum=store.checksum(stored),
    )


def _difference(store: Store, table_key: str, file: ArchivedFile) -> str:
    """How the copy differs from the record; an empty string if it does not differ."""
    stored = store.stat(file.archived)
    if stored is None:
        return "it is missing"
    if stored.size_bytes != file.size_bytes:
        return f"it has {stored.size_bytes} bytes instead of {file.size_bytes}"
    checksum = store.checksum(stored)
    end = _end_of(store, file.archived)
    if checksum != file.checksum:
        # The copy of an object gets another ETag if it is encrypted or was uploaded in parts.
        may_be_equal = checksum.startswith("etag:")
        if not may_be_equal or end != _end_of(store, source_name(table_key, file)):
            return f"its content has the checksum {checksum} instead of {file.checksum}"
    try:
        row_count = _parsed(end, file.archived).num_rows
    except Broken as error:
        return str(error)
    if row_count != file.row_count:
        return f"it has {row_count} rows instead of {file.row_count}"
    return ""


def _in_parallel(work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    with ThreadPoolExecutor(max_workers=_REQUESTS_AT_ONCE) as pool:
        return [*pool.map(work, items)]


def requests_since(store: Store, before: Mapping[str, int]) -> dict[str, int]:
    """The counts of the S3 requests that a store has sent since its counts were `before`."""
    counts = {name: count - before.get(name, 0) for name, count in store.requests.items()}
    return {name: count for name, count in counts.items() if count}
