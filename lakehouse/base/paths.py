"""Paths in a Delta log, and addresses that people type: folders and `s3://bucket/folder`."""

import posixpath
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


def vector_path(vector: str) -> str | None:
    """The file of a deletion vector, or `None` if the vector is stored in the log.

    The file is a URI, or a path relative to the table. It is URL-encoded like all paths in the log.

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
    return quote(f"{prefix}/{name}" if prefix else name)


_ADDRESS = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?P<rest>.*)", re.DOTALL)
_S3_SCHEMES = ("s3", "s3a", "s3n")
# Characters of Hadoop's globs, and unprintable characters.
_UNSAFE = re.compile(r"[*?\[\]{}\\\x00-\x1f\x7f\ud800-\udfff]")
# An unsafe character, or the first dot of a path component `.` or `..`.
_REFUSED_CHARACTER = re.compile(_UNSAFE.pattern + r"|(?<=/)\.(?=\.?(?:/|$))")
# Source: Amazon S3 user guide, "General purpose bucket naming rules"
_BUCKET = re.compile(r"(?=.{3,63}$)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_IP_ADDRESS = re.compile(r"[0-9]+(\.[0-9]+){3}")
# Matches a user before an @, as in http://user:password@host, or a query with a =, which may be a
# signature. An @ in the path matches, too. An @ after a semicolon does not match: it belongs to a
# parameter of an sc:// address.
_CREDENTIALS = re.compile(r"://[^;?]*@|://\S*\?\S*=")


def holds_credentials(address: str) -> bool:
    """Whether an address may contain a user, a password or a signed query."""
    return _CREDENTIALS.search(address) is not None


def is_bucket(name: str) -> bool:
    """Whether the name is valid for a bucket."""
    return bool(_BUCKET.fullmatch(name)) and not _IP_ADDRESS.fullmatch(name)


def is_address(word: str) -> bool:
    """Whether `word` is an address, and not a table's key like `silver/orders`."""
    return word.startswith(("/", ".", "~")) or ":" in word


def parse_address(text: str, *, base: str) -> str:
    """The normalised address: `s3://bucket/folder`, or an absolute folder.

    Relative folders are resolved against `base`.

    Raises:
        Refused: the text is not such an address, or it contains credentials or characters that
            Hadoop interprets.
    """
    match = _ADDRESS.fullmatch(text)
    scheme = match["scheme"].lower() if match else "file"
    rest = match["rest"] if match else text
    if scheme not in ("file", *_S3_SCHEMES):
        # The message omits the rest of the text, which may contain a secret key.
        raise Refused(
            f"the address begins with {scheme}:, which is not supported. Use a folder,"
            " file:///folder or s3://bucket/folder."
        )
    bucket, _, key = rest.lstrip("/").rstrip("/").partition("/")
    has_signed_query = "=" in rest.partition("?")[2]
    has_user = "@" in rest and not is_bucket(bucket)
    if scheme != "file" and (has_signed_query or has_user):
        raise Refused(
            "the address holds a user, a password or a signed query. Use an address"
            " without credentials; boto3 finds them itself."
        )
    unsafe = _UNSAFE.search(text)
    if not text or unsafe:
        near = f" Did you mean {_UNSAFE.sub('', text)!r}?" if text else ""
        problem = f"holds {unsafe.group()!r}" if unsafe else "is empty"
        raise Refused(
            f"the address {problem}: {text!r}. Use a folder, file:///folder or"
            f" s3://bucket/folder.{near}"
        )
    if scheme == "file":
        return _folder(f"/{rest.lstrip('/')}" if match else text, base=base)
    key_parts = key.split("/") if key else []
    if not is_bucket(bucket) or not {"", ".", ".."}.isdisjoint(key_parts):
        near = "/".join([part for part in rest.split("/") if part not in ("", ".", "..")])
        raise Refused(
            f"the address is {text!r}, which is not a folder of a bucket. Did you mean"
            f" s3://{near.lower()}?"
        )
    return f"s3://{bucket}/{key}".rstrip("/")


def _folder(text: str, *, base: str) -> str:
    """The absolute folder of a path."""
    if text.startswith("~"):
        raise Refused(
            f"the address is {text!r}, but ~ is not expanded. Use the full path, like"
            f" $HOME{text[1:]}."
        )
    path = posixpath.normpath(text if text.startswith("/") else f"{base}/{text}")
    if not path.strip("/"):
        raise Refused("the address is '/'. Use a folder below it, like /data/orders.")
    return f"/{path.lstrip('/')}"


def quoted_address(address: str) -> str:
    """The address with its forbidden characters percent-encoded."""
    return _REFUSED_CHARACTER.sub(
        lambda character: f"%{ord(character[0]):02X}",
        address.encode("utf-8", "backslashreplace").decode(),
    )
