"""The place of a deletion vector, by the id that the log gives it."""

import re
from base64 import b85decode
from urllib.parse import quote
from uuid import UUID

from lakehouse.core.errors import Broken, Refused

# Source: https://rfc.zeromq.org/spec/32/
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_BASE85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
# A sign that is in Base85 alone becomes a blank, which is in neither.
_AS_BASE85 = {ord(sign): " " for sign in _BASE85} | str.maketrans(_Z85, _BASE85)
_VECTOR = re.compile(r"(?P<storage>[uip])(?P<where>.*?)(?:@\d*)?", re.DOTALL)
_UUID_LENGTH = 20
_IN_TABLE = re.compile(rf"u.*[{re.escape(_Z85)}]{{{_UUID_LENGTH}}}", re.DOTALL)


def is_vector(vector: str) -> bool:
    """Whether the id, without an offset, is one that the protocol allows; where the vector lies may be unknown here all the same."""
    return not vector.startswith("u") or _IN_TABLE.fullmatch(vector) is not None


def vector_file(vector: str) -> str | None:
    """The file of a deletion vector, by its unique id: relative to the table, or a URI; `None` for one inside the log.

    Refused: stored in a way unknown here; Broken: damaged. Source: PROTOCOL.md, "Deletion Vectors", derived field absolutePath.
    """
    match = _VECTOR.fullmatch(vector)
    if match is None:
        raise Refused(
            f"deletion vector {vector!r} is stored in a way unknown here; accepted: u, p or i at its start"
        )
    if match["storage"] != "u":
        return match["where"] if match["storage"] == "p" else None
    prefix, encoded = match["where"][:-_UUID_LENGTH], match["where"][-_UUID_LENGTH:]
    try:
        name = f"deletion_vector_{UUID(bytes=b85decode(encoded.translate(_AS_BASE85)))}.bin"
    except ValueError as error:
        raise Broken(
            f"deletion vector {vector!r} names no file ({error}): restore the log that it stands in"
        ) from error
    return f"{prefix}/{name}" if prefix else name


def vector_path(vector: str) -> str | None:
    """The same as a path of the log, with its characters encoded."""
    name = vector_file(vector)
    return name if name is None or vector.startswith("p") else quote(name)
