"""Which of a table's live files are not in storage."""

import re
from collections.abc import Iterator
from urllib.parse import unquote
from uuid import UUID

from lakehouse.core.errors import Refused
from lakehouse.core.layout import Layout
from lakehouse.engine.store import Store

# Source: https://rfc.zeromq.org/spec/32/
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_VECTOR = re.compile(r"(?P<storage>[uip])(?P<where>.*?)(?:@\d+)?", re.DOTALL)
_UUID_LENGTH = 20


def missing_files(store: Store, layout: Layout) -> tuple[str, ...]:
    """Live data files and deletion vectors that storage does not have: names relative to the table, not encoded, sorted.

    The table's folder is listed once, after the layout was read: a file that a commit since then removed is still
    there until a vacuum takes it.

    Raises:
        Refused: a file lies outside the lake (a shallow clone), where this store cannot look.
    """
    stored = {file.name for file in store.list(layout.table)}
    prefix = f"{layout.table}/"
    wanted = {prefix + name: name for name in _names(layout)}
    return tuple(sorted(name for stored_name, name in wanted.items() if stored_name not in stored))


def vector_file(vector: str) -> str | None:
    """The file of a deletion vector, by its unique id: relative to the table, or a URI; `None` for one inside the log.

    Source: PROTOCOL.md, "Deletion Vectors", derived field absolutePath.
    """
    match = _VECTOR.fullmatch(vector)
    if match is None:
        raise Refused(f"deletion vector {vector!r} is stored in a way unknown here; accepted: u, p or i at its start")
    if match["storage"] == "i":
        return None
    if match["storage"] == "p":
        return match["where"]
    prefix, encoded = match["where"][:-_UUID_LENGTH], match["where"][-_UUID_LENGTH:]
    name = f"deletion_vector_{UUID(bytes=_from_z85(encoded))}.bin"
    return f"{prefix}/{name}" if prefix else name


def _names(layout: Layout) -> Iterator[str]:
    for file in layout.files:
        yield _relative(unquote(file.path), layout)
    for vector in {file.deletion_vector for file in layout.files if file.deletion_vector is not None}:
        name = vector_file(vector)
        if name is not None:
            yield _relative(unquote(name) if vector.startswith("p") else name, layout)


def _relative(path: str, layout: Layout) -> str:
    """`path` relative to its table; an absolute one must lie in the table's folder."""
    if not (path.startswith("/") or re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", path)):
        return path
    bare = _bare(path)
    base = f"{_bare(layout.uri).rstrip('/')}/"
    if not bare.startswith(base):
        raise Refused(f"files of {layout.table}: {path} lies outside the table's folder {layout.uri}; accepted: files inside it")
    return bare.removeprefix(base)


def _bare(uri: str) -> str:
    """A URI without what differs between spellings of one place: `file:` and its slashes, `s3` or `s3a`."""
    return re.sub(r"^s3[an]?://", "s3://", re.sub(r"^file:/+", "/", uri))


def _from_z85(text: str) -> bytes:
    decoded = b""
    for start in range(0, len(text), 5):
        value = 0
        for character in text[start : start + 5]:
            value = value * 85 + _Z85.index(character)
        decoded += value.to_bytes(4, "big")
    return decoded
