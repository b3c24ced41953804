"""Recognises binary formats by their first bytes, whatever a file's name says.

No JSON or CSV text begins with these bytes: each signature has a control character, a byte that is
not UTF-8, or enough of a fixed text. Source: RFC 1952 (gzip), RFC 8878 (zstd), the xz, LZ4 and
Snappy frame formats, bzip2's `decompress.c`, APPNOTE.TXT (zip), the specifications of Parquet and
Avro, ORC v1.
"""

import re

# The number of bytes that `detect_format` looks at.
SIGNATURE_BYTES = 16

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


def detect_format(content: bytes) -> str | None:
    """The name of the binary format of a content; `None` if it may be text."""
    head = content[:SIGNATURE_BYTES]
    return next((name for name, pattern in _PATTERNS.items() if pattern.match(head)), None)
