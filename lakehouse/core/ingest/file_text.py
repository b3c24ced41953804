"""The text of a landed file, and the proof that a longer file begins with the text that was loaded.

Kafka Connect's S3 sink writes an object again under the same name with more records (kafka-connect-storage-cloud#341).

**Safety properties**
- A file is only taken for a continuation if its first bytes have the digest of the text that was loaded.
- A packed file is compared by what it unpacks to: its own bytes change when it is packed again.
"""

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple


class TextMark(NamedTuple):
    """The size and the digest of a text."""

    size_bytes: int
    digest: str


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
