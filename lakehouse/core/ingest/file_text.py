"""The text of a landed file, and the proof that a longer file begins with the text that was loaded.

Kafka Connect's S3 sink writes an object again under the same name with more records (kafka-connect-storage-cloud#341).

**Safety properties**
- A file is only taken for a continuation if its first bytes have the digest of the text that was loaded.
- A packed file is compared by what it unpacks to: its own bytes change when it is packed again.
"""

import gzip
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from io import BytesIO
from typing import NamedTuple

_CHUNK_BYTES = 4 * 1024 * 1024


class Compression(NamedTuple):
    """The packing of a file: its name, and what gives the content in pieces."""

    name: str
    unpack: Callable[[bytes], Iterator[bytes]]


class TextMark(NamedTuple):
    """The size and the digest of a text."""

    size_bytes: int
    digest: str


def _gunzip(data: bytes) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=BytesIO(data)) as file:
        yield from iter(lambda: file.read(_CHUNK_BYTES), b"")


GZIP = Compression("gzip", _gunzip)


def text_chunks(data: bytes, compression: Compression | None) -> Iterator[bytes]:
    """The text of a file as it is encoded, unpacked, in chunks."""
    slices = (data[start : start + _CHUNK_BYTES] for start in range(0, len(data), _CHUNK_BYTES))
    return slices if compression is None else compression.unpack(data)


def content_digest(data: bytes) -> str:
    """The digest by which the ledger knows a content."""
    return blake2b(data, digest_size=16).hexdigest()


def mark_text(chunks: Iterable[bytes]) -> TextMark:
    """The mark of a text that comes in chunks."""
    size_bytes, digest = 0, blake2b(digest_size=16)
    for chunk in chunks:
        size_bytes += len(chunk)
        digest.update(chunk)
    return TextMark(size_bytes, digest.hexdigest())


def first_chunks(chunks: Iterable[bytes], size_bytes: int) -> Iterator[bytes]:
    """The first `size_bytes` bytes of a text that comes in chunks; all of a shorter one."""
    missing_bytes = size_bytes
    for chunk in chunks:
        yield chunk[:missing_bytes]
        missing_bytes -= len(chunk)
        if missing_bytes <= 0:
            return


def begins_with(chunks: Iterable[bytes], mark: TextMark) -> bool:
    """Whether a text begins with the one that has this mark."""
    return mark_text(first_chunks(chunks, mark.size_bytes)) == mark
