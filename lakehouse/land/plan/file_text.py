"""Unpacks, decodes and splits the text of a landed file, and writes retried lines as such.

**Safety properties** (tests in `land/plan/test_file_text.py`)
- Every byte of a readable text belongs to a record, a line break, a blank line, a CSV header, or a
  byte order mark.
- An unreadable file fails before its first record: either all of its records are read, or none.
- Memory holds only one chunk and one record of the unpacked text at a time.
"""

import codecs
import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from io import BytesIO
from typing import NamedTuple

from lakehouse.declare.landing import Landing, retried_folder
from lakehouse.delta.columns import field_names
from lakehouse.land.plan.csv_records import csv_records, records_with_header
from lakehouse.land.plan.json_records import json_records
from lakehouse.land.plan.records import (
    UTF_8,
    Record,
    Unreadable,
    earlier_names,
    too_large,
)


def retried_path(table_key: str, landing: Landing, ids: Iterable[tuple[str, int, str]]) -> str:
    """The path of the file with these lines: source file, line, and digest of the source file.

    The same lines always give the same path.
    """
    digest = blake2b(repr(sorted(ids)).encode("utf-8", "surrogateescape"), digest_size=16)
    folder = f"{landing.prefix}{retried_folder(table_key)}"
    return f"{folder}{digest.hexdigest()}{landing.suffixes[0]}"


def csv_fields_text(landing: Landing) -> str | None:
    """The declared CSV fields in order, joined by the delimiter; `None` for other formats."""
    if not landing.records_are_csv:
        return None
    return landing.csv.delimiter.join(field_names(landing.schema))


def are_declared(fields: str | None, landing: Landing) -> bool:
    """Whether the fields of a quarantined CSV record are those of the declaration.

    Fields may have their earlier names. In other formats, a record has no fields recorded.
    """
    if fields is None or not landing.records_are_csv:
        return fields is None and not landing.records_are_csv
    present = earlier_names(landing)
    delimiter = landing.csv.delimiter
    names = [present.get(name, name) for name in fields.split(delimiter)]
    return delimiter.join(names) == csv_fields_text(landing)


def retried_text(lines: Sequence[tuple[str, str | None]], landing: Landing) -> str:
    """The text of a file with these lines, in the table's own format.

    A line of CSV comes with its fields that the schema does not name, as a JSON object. The header
    of a CSV file names the declared fields, then all others.
    """
    if not landing.records_are_csv:
        return "".join(f"{raw}\n" for raw, _ in lines)
    others = [json.loads(undeclared or "{}") for _, undeclared in lines]
    other_names = sorted({name for fields in others for name in fields})
    records = list[str]()
    if landing.csv.header:
        names = (*field_names(landing.schema), *other_names)
        records.append(landing.csv.delimiter.join(_quoted(name, landing) for name in names))
    for (raw, _), fields in zip(lines, others, strict=True):
        values = [_quoted(fields[name], landing) if name in fields else "" for name in other_names]
        records.append(landing.csv.delimiter.join([raw, *values]))
    return "".join(f"{_not_blank(record, landing)}\n" for record in records)


def _quoted(text: str, landing: Landing) -> str:
    quote = landing.csv.quote
    return f"{quote}{text.replace(quote, quote * 2)}{quote}"


def _not_blank(record: str, landing: Landing) -> str:
    """The record. A blank line would be ignored, so a record of one blank field is quoted."""
    if record.strip(" \t\v\f".replace(landing.csv.delimiter, "")):
        return record
    return _quoted(record, landing) if record else landing.null_value or _quoted("", landing)


_CHUNK_BYTES = 4 * 1024 * 1024
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_OTHER_MARKS = {
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}

_SIGNATURE_BYTES = 16
# The first bytes of binary formats. No JSON or CSV text begins with them: each signature has a
# control character, a byte that is not UTF-8, or enough of a fixed text. Source: RFC 1952 (gzip),
# RFC 8878 (zstd), the xz, LZ4 and Snappy frame formats, bzip2's `decompress.c`, APPNOTE.TXT (zip),
# the specifications of Parquet and Avro, ORC v1.
_SIGNATURES = {
    "gzip": rb"\x1f\x8b\x08",
    "zstd": rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18",
    "bzip2": rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)",
    "xz": rb"\xfd7zXZ\x00",
    "lz4": rb"\x04\x22\x4d\x18",
    "framed Snappy": rb"\xff\x06\x00\x00sNaPpY",
    "zip": rb"PK(?:\x03\x04|\x05\x06)",
    "7z": rb"7z\xbc\xaf\x27\x1c",
    "Parquet": rb"PAR1\x15",
    # A CSV header with the delimiter \x01 may begin with these letters, too.
    "Avro": rb"Obj\x01(?:[\x02-\x08\x0c\x0e-\x1f]|\n[\x0e-\x1f])",
    "ORC": rb"ORC.{0,12}?[\x00\x02-\x08\x0e-\x1f]",
}
_PATTERNS = {name: re.compile(signature, re.DOTALL) for name, signature in _SIGNATURES.items()}


class Compression(NamedTuple):
    """A compression: its name, and a function that returns the unpacked content in pieces."""

    name: str
    unpack: Callable[[bytes], Iterator[bytes]]


def _gunzip(data: bytes) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=BytesIO(data)) as file:
        yield from iter(lambda: file.read(_CHUNK_BYTES), b"")


GZIP = Compression("gzip", _gunzip)


def read_records(
    data: bytes,
    landing: Landing,
    *,
    compression: Compression | None = None,
    max_content_bytes: int,
) -> Iterator[Record]:
    """The records of a text file's bytes, in order, without blank lines.

    A file that unpacks to more than `max_content_bytes` is unreadable.

    Raises:
        Unreadable: no record can be read. This is raised before the first record is returned.
    """
    if compression is not None:
        _check_packed(data, max_content_bytes, compression)

    def content() -> Iterator[bytes]:
        return _decoded_text(text_chunks(data, compression), landing, compression)

    # A wrong encoding, or a quote that is never closed, may show only at the end of the text. So
    # the whole text is read before the first record is returned.
    if landing.records_are_csv:
        for _ in records_with_header(content(), landing):
            pass
    elif landing.encoding.lower() not in UTF_8:
        for _ in content():
            pass
    split_records = csv_records if landing.records_are_csv else json_records
    yield from split_records(content(), landing)


def detect_format(content: bytes) -> str | None:
    """The name of the binary format of a file's content; `None` if the content may be text."""
    head = content[:_SIGNATURE_BYTES]
    for name, pattern in _PATTERNS.items():
        if pattern.match(head):
            return name
    return None


def begins_with_other_mark(content: bytes) -> bool:
    """Whether a content begins with the byte order mark of an encoding other than UTF-8."""
    return content.startswith((*_OTHER_MARKS,))


def text_chunks(data: bytes, compression: Compression | None) -> Iterator[bytes]:
    """The unpacked text of a file in chunks, not yet decoded."""
    if compression is not None:
        return compression.unpack(data)
    return (data[start : start + _CHUNK_BYTES] for start in range(0, len(data), _CHUNK_BYTES))


def content_digest(data: bytes) -> str:
    """The digest that identifies a file's content in the ledger."""
    return blake2b(data, digest_size=16).hexdigest()


def _check_packed(data: bytes, limit: int, compression: Compression) -> None:
    """Raises `Unreadable` unless the whole file can be unpacked, to at most `limit` bytes."""
    if not data:
        raise Unreadable(
            f"it is empty, and a {compression.name} file has at least a header; land it again"
        )
    size = 0
    try:
        for chunk in compression.unpack(data):
            size += len(chunk)
            if size > limit:
                raise too_large(limit)
    except (EOFError, OSError, zlib.error) as error:
        raise Unreadable(
            f"its {compression.name} is damaged after {size} unpacked bytes ({error}); land it "
            "again"
        ) from error


def _decoded_text(
    chunks: Iterator[bytes], landing: Landing, compression: Compression | None
) -> Iterator[bytes]:
    """The text as UTF-8, without a byte order mark."""
    chunks = _text_only(chunks, landing, compression)
    if landing.encoding.lower() not in UTF_8:
        chunks = _recoded(chunks, landing.encoding)
    return _unmarked(chunks)


def _text_only(
    chunks: Iterator[bytes], landing: Landing, compression: Compression | None
) -> Iterator[bytes]:
    """The content unchanged. Raises `Unreadable` if it has a binary format, and thus no lines."""
    first = _first_bytes(chunks, _SIGNATURE_BYTES)
    binary_format = detect_format(first)
    if binary_format is not None:
        content = "its content" if compression is None else f"the content of its {compression.name}"
        raise Unreadable(
            f"{content} is {binary_format} and not {landing.format.upper()}; land it again as "
            "text, plain or packed once with gzip or zstd"
        )
    yield first
    yield from chunks


def _first_bytes(chunks: Iterator[bytes], count: int) -> bytes:
    """The first chunks, with at least `count` bytes if the content is that long."""
    first = b""
    while len(first) < count and (chunk := next(chunks, b"")):
        first += chunk
    return first


def _recoded(chunks: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    try:
        for text in codecs.iterdecode(chunks, encoding):
            yield text.encode()
    except UnicodeError as error:
        raise Unreadable(
            f"its encoding is not {encoding}, which Landing.encoding declares ({error}); land it "
            "again, or declare its encoding"
        ) from error


def _unmarked(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The content without a UTF-8 byte order mark. Raises `Unreadable` for another mark."""
    first = _first_bytes(chunks, len(max(_OTHER_MARKS, key=len)))
    for mark, encoding in _OTHER_MARKS.items():
        if first.startswith(mark):
            raise Unreadable(
                f"it begins with the byte order mark of {encoding}; land it as UTF-8, or declare "
                "Landing.encoding"
            )
    yield first.removeprefix(BYTE_ORDER_MARK)
    yield from chunks
