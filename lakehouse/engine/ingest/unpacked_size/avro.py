"""The bytes of an Avro file's blocks, unpacked no further than a limit."""

import bz2
import lzma
import zlib
from collections.abc import Iterator
from io import BytesIO
from typing import Any

from lakehouse.core.ingest.records import Unreadable, too_large

_CHUNK_BYTES = 4 * 1024 * 1024
_SYNC_BYTES = 16


def check_avro(data: bytes, limit: int) -> None:
    """Nothing for an Avro file whose blocks unpack to `limit` bytes; a row of no bytes counts as one.

    Raises:
        Unreadable: they unpack to more, or an array of its schema may have any number of items in no bytes, or its codec is unknown.
        Exception: whatever the reader stumbles over.
    """
    from fastavro import block_reader, schemaless_reader

    stream = BytesIO(data)
    file: Any = block_reader(stream)
    _takes_no_bytes(file.writer_schema, {})
    size = 0
    while stream.tell() < len(data):
        row_count: Any = schemaless_reader(stream, "long", None)
        packed: Any = schemaless_reader(stream, "bytes", None)
        stream.seek(_SYNC_BYTES, 1)
        size += max(row_count, _block_bytes(file.codec, packed, limit - size))
        if size > limit:
            raise too_large(limit)


def _block_bytes(codec: str, packed: bytes, limit: int) -> int:
    """The bytes of an Avro block, counted until they are more than `limit`."""
    if codec == "null":
        return len(packed)
    if codec == "snappy":
        import cramjam

        return cramjam.snappy.decompress_raw_len(packed)  # as the block itself tells; the reader makes room for so much
    if codec not in _CODECS:
        raise Unreadable(f"its codec is {codec!r}; accepted: null, snappy, {', '.join(_CODECS)}; land it again in one of them")
    size = 0
    for chunk in _CODECS[codec](packed):
        size += len(chunk)
        if size > limit:
            break
    return size


def _deflate(packed: bytes) -> Iterator[bytes]:
    unpack = zlib.decompressobj(-zlib.MAX_WBITS)
    while chunk := unpack.decompress(packed, _CHUNK_BYTES):
        yield chunk
        packed = unpack.unconsumed_tail


def _bzip2(packed: bytes) -> Iterator[bytes]:
    with bz2.BZ2File(BytesIO(packed)) as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


def _xz(packed: bytes) -> Iterator[bytes]:
    with lzma.LZMAFile(BytesIO(packed)) as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


_CODECS = {"deflate": _deflate, "bzip2": _bzip2, "xz": _xz}


def _takes_no_bytes(kind: Any, named: dict[str, bool]) -> bool:
    """Whether a value of an Avro type takes no bytes; `named` are the types that were seen.

    Raises:
        Unreadable: the items of an array are of such a type, so that a few bytes tell billions of them.
    """
    if isinstance(kind, str):
        return kind == "null" or named.get(kind, False)
    if isinstance(kind, list):
        for each in kind:  # pyright: ignore[reportUnknownVariableType]
            _takes_no_bytes(each, named)
        return False
    match kind["type"]:
        case "array":
            if _takes_no_bytes(kind["items"], named):
                raise Unreadable("its schema has an array whose items take no bytes; land it with items that hold something")
            return False
        case "map":
            _takes_no_bytes(kind["values"], named)
            return False
        case "record" | "error":
            named[kind["name"]] = False  # until its fields are known
            fields = [_takes_no_bytes(field["type"], named) for field in kind["fields"]]  # each is looked at
            named[kind["name"]] = all(fields)
            return named[kind["name"]]
        case "fixed":
            named[kind["name"]] = kind["size"] == 0
            return named[kind["name"]]
        case inner:
            return _takes_no_bytes(inner, named)
