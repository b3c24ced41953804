"""Decodes a Debezium line to an event. Kafka Connect's `schema` and `payload` are unpacked first.

`declare/change_sources.py` says what each operation of an event means, and `cdc/run.py` applies it.

**Safety properties**
- Each declared field of a row is decoded as `cdc/plan/values.py` promises. If that is impossible,
  the event has a problem, which names the field unless an earlier problem was found.
- A placeholder for a value that Debezium did not send is not loaded: the field is null. Unless the
  event is a deletion, its member `UNSENT` lists such fields of the row after the change.
- A placeholder inside a field's value is a problem, except in a deletion. Only in an array of
  booleans, it is not recognized.
"""

import hashlib
import json
import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, cast
from uuid import UUID

from lakehouse.cdc.plan.values import Field, Undecodable, decoded, fields_of
from lakehouse.declare.change_sources import Debezium
from lakehouse.land.plan.records import members_of, object_of, with_present_names

# The member that is added to an event, and lists the fields whose values were not sent.
UNSENT = "_lakehouse_unsent"
TOMBSTONE = "null"
# Postgres does not send a large value that did not change. Debezium sends a placeholder instead:
# one of `_TEXTS` (this text, its bytes in Base64 or hex, or a UUID made of its bytes), an array
# with one of `_TEXTS`, or an array of its bytes as numbers. An hstore with this text as key and
# value is refused. In an array of booleans, the placeholder cannot be distinguished from values.
# Source: Debezium's reference, `unavailable.value.placeholder`; UnchangedToastedPlaceholder
_PLACEHOLDER = "__debezium_unavailable_value"
_BYTES = _PLACEHOLDER.encode()
_UUID = UUID(bytes=hashlib.md5(_BYTES, usedforsecurity=False).digest(), version=3)
_TEXTS = (_PLACEHOLDER, b64encode(_BYTES).decode(), _BYTES.hex(), str(_UUID))
# The start of a JSON array of numbers that holds the placeholder's bytes: `_`, `_`, `d`.
_ARRAY_START = re.compile(r"\[\s*95(?:\.0+)?,\s*95(?:\.0+)?,\s*100\b")
_NOT_SENT = f"was not sent ({_PLACEHOLDER})"
_NO_NAMES: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event as JSON text and as a value, and its problem, if there is one.

    The text of a tombstone is `null`.
    """

    text: str
    value: Mapping[str, Any]
    problem: str | None = None


def canonical_event(
    line: object,
    text: str,
    changes: Debezium,
    fields: Mapping[str, str],
    names: Mapping[str, str] = _NO_NAMES,
) -> Event | None:
    """The event in a line, with its declared fields decoded to their types.

    `None` if the line is neither an object nor null.

    `line` is the parsed `text`. `fields` maps the declared fields to their types, and `names` maps
    earlier names of fields to present names. A null line is a tombstone.
    """
    if line is None:
        return Event(text=TOMBSTONE, value={})
    if not isinstance(line, dict):
        return None
    event = cast("dict[str, Any]", line)
    # In an unwrapped row, `payload` may be a column. Then the line is taken as the row itself.
    has_payload_column = changes.unwrapped and "payload" in fields
    if _is_tombstone(event, has_payload_column=has_payload_column):
        return Event(text=TOMBSTONE, value={})
    schema: Mapping[str, Any] | None = None
    if isinstance(event.get("payload"), dict) and not has_payload_column:
        if isinstance(event.get("schema"), dict):
            schema = cast("dict[str, Any]", event["schema"])
        event = event["payload"]
        text = members_of(text)["payload"]
    return _Decoding(changes, fields, names, event, text).decoded_event(schema)


def _is_tombstone(line: Mapping[str, Any], *, has_payload_column: bool) -> bool:
    """Whether a line is a Kafka Connect envelope with a null payload: a tombstone.

    Debezium sends a tombstone after a deletion.

    Source: Kafka Connect, JsonConverter
    """
    names = line.keys()
    if has_payload_column and "schema" not in names:
        return False  # the line is the row itself, and null is the value of its column
    return "payload" in names and names <= {"schema", "payload"} and line["payload"] is None


class _Decoding:
    """The decoding of one event, taken out of Kafka Connect's envelope."""

    def __init__(
        self,
        changes: Debezium,
        fields: Mapping[str, str],
        names: Mapping[str, str],
        event: dict[str, Any],
        text: str,
    ) -> None:
        self._changes = changes
        self._fields = fields
        self._names = names
        self._event = event
        self._text = text
        self._operation = event.get("__op" if changes.unwrapped else "op")
        is_marked = str(event.get("__deleted")).lower() == "true"
        self._is_deletion = self._operation == "d" or (changes.unwrapped and is_marked)
        self._problem: str | None = None
        self._unsent: list[str] = []

    def decoded_event(self, schema: Mapping[str, Any] | None) -> Event:
        """The event, with the first problem of its fields. `schema` is the schema in the line."""
        if self._changes.unwrapped:
            event, self._text = self._decoded_row(self._event, self._text, fields_of(schema))
        else:
            event = self._decoded_sides(fields_of(schema))
        if self._unsent:
            if self._operation != "u":
                self._refuse(
                    f"field {self._unsent[0]} {_NOT_SENT}, and the event is not marked as an"
                    " update (op u), which would keep the table's value: use REPLICA IDENTITY FULL"
                    " at the source; if rows are unwrapped, use add.fields=op, which marks updates"
                )
            members = {**members_of(self._text), UNSENT: json.dumps(self._unsent)}
            self._text = object_of(members.items())
        if not self._is_deletion and _holds_placeholder(self._text):
            self._refuse(
                f"a value inside a field {_NOT_SENT}: use REPLICA IDENTITY FULL at the source"
            )
        return Event(text=self._text, value=event, problem=self._problem)

    def _decoded_sides(self, schema: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        event = dict(self._event)
        members = members_of(self._text)
        texts: dict[str, str] = {}
        for side in ("before", "after"):
            row = event.get(side)
            if isinstance(row, dict):
                event[side], texts[side] = self._decoded_row(
                    cast("dict[str, Any]", row),
                    members[side],
                    fields_of(schema.get(side)),
                    is_state=side == "after",
                )
        # `_decoded_row` returns the same text object if nothing changes.
        if any(text is not members[side] for side, text in texts.items()):
            self._text = object_of({**members, **texts}.items())
        return event

    def _decoded_row(
        self,
        row: dict[str, Any],
        text: str,
        schema: Mapping[str, Mapping[str, Any]],
        *,
        is_state: bool = True,
    ) -> tuple[dict[str, Any], str]:
        """The decoded row, as a value and as text.

        `is_state` is true for the row after the change. Unsent values are recorded for this row
        only, and not for a deletion.
        """
        row, text, earlier, problem = with_present_names(row, text, self._names)
        if problem is not None:
            self._refuse(problem)
        replaced: dict[str, Any] = {}
        # Splitting the text takes time, and few rows need it: those with a field that is decoded
        # from its spelling, or replaced.
        members = cache(partial(members_of, text))

        def spelled(name: str) -> str:
            return members()[name]

        for name, value in row.items():
            if _is_unsent(value):
                replaced[name] = None
                if is_state and not self._is_deletion:
                    self._unsent.append(name)
            elif value is not None and name in self._fields:
                field = Field(
                    declared=self._fields[name],
                    schema=schema.get(earlier.get(name, name)),
                    decimals=self._changes.decimals,
                )
                try:
                    new_value = decoded(value, field, partial(spelled, name))
                except Undecodable as error:
                    self._refuse(f"field {name} {error}")
                    continue
                if new_value is not value:
                    replaced[name] = new_value
        if not replaced:
            return row, text
        texts = {name: json.dumps(value, ensure_ascii=False) for name, value in replaced.items()}
        new_members = {**members(), **texts}
        return {**row, **replaced}, object_of(new_members.items())

    def _refuse(self, problem: str) -> None:
        """Records a problem, unless the event already has one."""
        self._problem = self._problem or problem


def _is_unsent(value: object) -> bool:
    match value:
        case str():
            return value in _TEXTS
        case list():
            items = cast("list[Any]", value)
            if len(items) == 1:
                return isinstance(items[0], str) and items[0] in _TEXTS
            return len(items) == len(_BYTES) and items == [*_BYTES]
        case _:
            return False


def _holds_placeholder(text: str) -> bool:
    return any(each in text for each in _TEXTS) or _ARRAY_START.search(text) is not None
