"""URIs as logs spell them, and the one spelling by which they are compared."""

import re

_ABSOLUTE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:/")


def is_absolute(path: str) -> bool:
    """Whether a path of a log names a place by itself, not below its table."""
    return _ABSOLUTE.match(path) is not None


def bare_uri(uri: str) -> str:
    """A URI without what differs between spellings of one place: `file:` and its slashes, `s3` or `s3a`, the last slash."""
    return re.sub(r"^s3[an]?://", "s3://", re.sub(r"^file:/+", "/", uri)).rstrip("/")
