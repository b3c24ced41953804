"""URIs and paths as logs spell them, and the one spelling by which they are compared."""

import re
from posixpath import normpath
from urllib.parse import unquote

_ABSOLUTE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:/")
_SCHEME = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*://[^/]*)?/?")
_NO_NAME = re.compile(r"(?:^|/)\.{0,2}(?:/|$)")


def is_absolute(path: str) -> bool:
    """Whether a path of a log names a place by itself, not below its table."""
    return _ABSOLUTE.match(path) is not None


def bare_uri(uri: str) -> str:
    """A URI without what differs between spellings of one place: `file:` and its slashes, `s3` or `s3a`, and parts that name nothing."""
    bare = re.sub(r"^s3[an]?://", "s3://", re.sub(r"^file:/+", "/", uri))
    head = _SCHEME.match(bare)
    start = head.end() if head else 0
    return f"{bare[:start]}{plain_path(bare[start:])}".rstrip("/")


def plain_path(path: str) -> str:
    """A relative path without empty parts, `.` and `..`; of those that lead out of its start the `..` stay.

    Source: java.net.URI.normalize, which Hadoop's Path calls for every path of a log.
    """
    if not _NO_NAME.search(path):
        return path
    normal = normpath(path.lstrip("/"))
    return "" if normal == "." else normal


def name_in_table(path: str) -> str | None:
    """The name that a path of a log has below its table's folder, decoded; `None` for a path that leads elsewhere, or may."""
    if is_absolute(path):
        return None
    name = plain_path(unquote(path))
    return None if name == ".." or name.startswith("../") else name


def name_below(uri: str, root: str) -> str | None:
    """The name that `uri`, decoded, has below `root`, by their spelling alone; `None` for one that is elsewhere by that."""
    bare, base = bare_uri(uri), f"{bare_uri(root)}/"
    return bare.removeprefix(base) if bare.startswith(base) else None


def split_bucket(address: str) -> tuple[str, str]:
    """Of `s3://bucket/folder` the bucket, and the folder, which may be empty."""
    bucket, _, folder = address.removeprefix("s3://").partition("/")
    return bucket, folder
