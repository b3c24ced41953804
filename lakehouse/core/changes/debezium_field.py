"""A field of a Debezium event: its declared type, and its type in the schema of the line."""

from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast


class Undecodable(Exception):
    """A value is malformed or ambiguous, or the declared type cannot hold it.

    The text continues a sentence that begins with the field's name. It gives the reason and, for
    some reasons, what to do.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field as declared, and its part of the line's schema.

    `schema` is `None` if the line has no schema. `decimals` is the declared `Debezium.decimals`.
    """

    declared: str
    schema: Mapping[str, Any] | None
    decimals: str | None

    @property
    def name(self) -> str:
        """The semantic type, for example `io.debezium.time.Date`; may be empty."""
        return str((self.schema or {}).get("name") or "")

    @property
    def type(self) -> str:
        """The literal type, for example `int32`; empty without a schema."""
        return str((self.schema or {}).get("type") or "")

    @property
    def description(self) -> str:
        """The type in the schema, for messages."""
        return self.name or self.type


def part_of(schema: Mapping[str, Any] | None, part: str) -> Mapping[str, Any] | None:
    """The schema under the key `part`, for example the `items` of an array, or `None`."""
    value = (schema or {}).get(part)
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else None


def bytes_of(value: str) -> bytes:
    """The bytes of a Base64 text.

    Raises:
        Undecodable: the text is not Base64.
    """
    try:
        return b64decode(value, validate=True)
    except ValueError as error:  # binascii.Error, or a character that is not ASCII
        raise Undecodable(f"is {shown(value)}, which is not Base64") from error


def shown(value: Any) -> str:
    """The value as a message shows it: truncated if it is long."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
