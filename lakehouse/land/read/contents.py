"""Reads landed files, several in parallel, and splits the text files into records."""

import shlex
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from lakehouse.base.errors import Refused
from lakehouse.declare.landing import Landing
from lakehouse.land.plan.batches import Batch, LandedFile
from lakehouse.land.plan.file_text import GZIP, Compression, detect_format, read_records
from lakehouse.land.plan.records import MIB, Record
from lakehouse.store import Store

_READ_AT_ONCE_BYTES = 32 * MIB
_READ_AT_ONCE_FILES = 256
_READ_ALONE_AT_ONCE = 16
# A file may unpack to this multiple of the size limit of landed files.
UNPACKED_TIMES = 4
_CHUNK_BYTES = 4 * MIB


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


class Content(NamedTuple):
    """A landed file and its bytes, which are `None` if it is missing or archived.

    `archived_in` is the storage class of an archived file.
    """

    file: LandedFile
    data: bytes | None
    archived_in: str | None = None


def read_contents(
    store: Store, batch: Batch, *, stops_at_archived: bool
) -> Iterator[list[Content]]:
    """The contents of a batch's files in order, in lists of bounded size.

    If a file of a list is missing or archived, each file of the list is read by itself.

    Raises:
        Refused: a file is archived, and `stops_at_archived` is set; or a permission is missing.
    """
    for group in _read_at_once(batch.files):
        try:
            data = [*store.read_many([f"{batch.prefix}{file.name}" for file in group])]
        except FileNotFoundError:
            pass
        except Refused:
            if stops_at_archived:
                raise
        else:
            yield [*map(Content, group, data)]
            continue
        read_alone = partial(_read_alone, store, batch.prefix, stops_at_archived)
        with ThreadPoolExecutor(max_workers=_READ_ALONE_AT_ONCE) as readers:
            yield [*readers.map(read_alone, group)]


def restore_first(store: Store, path: str, storage_class: str) -> str:
    """The reason why an archived file is not read, and how to restore it."""
    key = f"{store.prefix}{path}"
    return (
        f"it is archived in storage class {storage_class}, in which no object can be read. Use "
        f"`aws s3api restore-object --bucket {store.bucket} --key {shlex.quote(key)} "
        "--restore-request Days=7`, then `lakehouse quarantine retry`"
    )


def landed_records(name: str, data: bytes, landing: Landing) -> Iterator[Record]:
    """The records of a landed text file."""
    return read_records(
        data,
        landing,
        compression=compression_of(name, data),
        max_content_bytes=UNPACKED_TIMES * landing.max_file_bytes,
    )


def compression_of(name: str, data: bytes) -> Compression | None:
    """The compression of a file, by its content or else by its name."""
    by_content = _BY_CONTENT.get(detect_format(data) or "")
    return by_content or _BY_ENDING.get(name.rpartition(".")[2].lower())


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


def _read_alone(store: Store, prefix: str, stops_at_archived: bool, file: LandedFile) -> Content:
    path = f"{prefix}{file.name}"
    try:
        return Content(file, store.read(path))
    except FileNotFoundError:
        return Content(file, None)
    except Refused:
        storage_class = None if stops_at_archived else store.archived_in(path)
        if storage_class is None:
            raise
        return Content(file, None, storage_class)
