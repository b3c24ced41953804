"""Paths in a Delta log: spellings of URIs, names within a table, files of deletion vectors."""

import re
from base64 import b85decode
from posixpath import normpath
from urllib.parse import quote, unquote
from uuid import UUID

from lakehouse.base.errors import Broken, Refused

_ABSOLUTE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:/")
_SCHEME = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*://[^/]*)?/?")
# Matches an empty part, `.` or `..` in a path.
_NO_NAME = re.compile(r"(?:^|/)\.{0,2}(?:/|$)")
# Source: https://rfc.zeromq.org/spec/32/
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_BASE85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
# Maps Z85 to Python's Base85, so that `b85decode` can read it. A character that is only in Base85
# becomes a blank, which `b85decode` rejects.
_AS_BASE85 = {ord(character): " " for character in _BASE85} | str.maketrans(_Z85, _BASE85)
# A unique id: the storage type, then a UUID, a path or data, then perhaps an offset.
_VECTOR = re.compile(r"(?P<storage>[uip])(?P<where>.*?)(?:@\d*)?", re.DOTALL)
_UUID_LENGTH = 20
# The id of a deletion vector in the table's folder: an optional folder, and an encoded UUID.
_IN_TABLE = re.compile(rf"u.*[{re.escape(_Z85)}]{{{_UUID_LENGTH}}}", re.DOTALL)


def is_absolute(path: str) -> bool:
    """Whether a path in a log is absolute, and not relative to its table."""
    return _ABSOLUTE.match(path) is not None


def bare_uri(uri: str) -> str:
    """The URI in one spelling: without `file:`, empty parts, `.` and `..`; with `s3` for `s3a`."""
    bare = re.sub(r"^s3[an]?://", "s3://", re.sub(r"^file:/+", "/", uri))
    head = _SCHEME.match(bare)
    start = head.end() if head else 0
    return f"{bare[:start]}{plain_path(bare[start:])}".rstrip("/")


def plain_path(path: str) -> str:
    """The relative path, without empty parts and `.`, and with each `..` resolved.

    If the path leads out of its base folder, the `..` at its beginning are kept.

    Source: java.net.URI.normalize, which Hadoop's Path calls for every path of a log.
    """
    if not _NO_NAME.search(path):
        return path
    normal = normpath(path.lstrip("/"))
    return "" if normal == "." else normal


def name_in_table(path: str) -> str | None:
    """The path decoded, relative to the table; `None` if it is absolute or leads out of it."""
    if is_absolute(path):
        return None
    name = plain_path(unquote(path))
    return None if name == ".." or name.startswith("../") else name


def name_below(uri: str, root: str) -> str | None:
    """The path of a decoded `uri` relative to `root`, or `None` if it is not below `root`."""
    bare = bare_uri(uri)
    base = f"{bare_uri(root)}/"
    return bare.removeprefix(base) if bare.startswith(base) else None


def split_bucket(address: str) -> tuple[str, str]:
    """The bucket and the folder of `s3://bucket/folder`. The folder may be empty."""
    bucket, _, folder = address.removeprefix("s3://").partition("/")
    return bucket, folder


def is_vector(vector: str) -> bool:
    """Whether `vector`, a unique id without its offset, is well-formed.

    Only ids that begin with `u` are checked. All ids of vectors at an absolute path, or in the log
    itself, are accepted.
    """
    return not vector.startswith("u") or _IN_TABLE.fullmatch(vector) is not None


def vector_file(vector: str) -> str | None:
    """The file of a deletion vector, or `None` if the vector is stored in the log.

    The file is a URI, or a path relative to the table.

    `vector` is the vector's unique id. Source: PROTOCOL.md, "Deletion Vectors", field absolutePath.

    Raises:
        Refused: the storage type is unknown.
        Broken: the id is damaged.
    """
    match = _VECTOR.fullmatch(vector)
    if match is None:
        raise Refused(
            f"deletion vector {vector!r} has an unknown storage type. Use an id that begins with "
            "u, p or i"
        )
    if match["storage"] != "u":
        return match["where"] if match["storage"] == "p" else None
    prefix = match["where"][:-_UUID_LENGTH]
    encoded = match["where"][-_UUID_LENGTH:]
    try:
        name = f"deletion_vector_{UUID(bytes=b85decode(encoded.translate(_AS_BASE85)))}.bin"
    except ValueError as error:
        raise Broken(
            f"deletion vector {vector!r} names no file ({error}). Restore the log that contains it"
        ) from error
    return f"{prefix}/{name}" if prefix else name


def vector_path(vector: str) -> str | None:
    """The path of `vector_file`, URL-encoded like all paths in the log, or `None` as there."""
    name = vector_file(vector)
    return name if name is None or vector.startswith("p") else quote(name)
