"""A field of a Debezium event: its declared type, and its type in the line's schema."""

import binascii
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast


class Undecodable(Exception):
    """A value that is ambiguous, or that the declared type cannot hold.

    The text says why, and sometimes what to do.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field as declared, and its part of the line's schema (`None` if there is no schema)."""

    declared: str
    schema: Mapping[str, Any] | None
    decimals: str | None

    @property
    def name(self) -> str:
        """The semantic type, like `io.debezium.time.Date`, or empty."""
        return str((self.schema or {}).get("name") or "")

    @property
    def type(self) -> str:
        """The literal type, like `int32`; empty without a schema."""
        return str((self.schema or {}).get("type") or "")

    @property
    def description(self) -> str:
        """The type in the schema, for messages."""
        return self.name or self.type


def part_of(schema: Mapping[str, Any] | None, part: str) -> Mapping[str, Any] | None:
    """The schema under the key `part`, like the `items` of an array, or `None`."""
    found = (schema or {}).get(part)
    return cast("Mapping[str, Any]", found) if isinstance(found, dict) else None


def bytes_of(value: str) -> bytes:
    """The bytes of a Base64 text."""
    try:
        return b64decode(value, validate=True)
    except binascii.Error as error:
        raise Undecodable(f"is {shown(value)}, which is not Base64") from error


def shown(value: Any) -> str:
    """The value for a message, truncated."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
