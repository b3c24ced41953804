"""Finds fields of landed records that the declaration does not name, and adds columns for them.

The undeclared fields of a record are kept as one JSON object, with each value as it was sent.
`Landing.new_columns` decides whether these fields become columns. A null field counts as absent, as
it does in a declared column.

**Safety properties** (tests in `test_undeclared.py`)
- Every non-null field of a record is either declared, or kept in the object with its value, except
  fields that count as added to the row by Debezium itself (`_is_of_the_event`).
- No batch changes the name of an added column. All of them are STRING, so each value fits.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, cast

from lakehouse.declare.change_sources import Debezium
from lakehouse.declare.landing import Landing
from lakehouse.delta.columns import field_names, struct_types, type_word
from lakehouse.land.plan.records import earlier_names, members_of, object_of

RESCUED = "_rescued"
# The limit for declared and added columns together. Their statistics slow writes.
MOST_COLUMNS = 1_000
_LONGEST_NAME = 255
# Source: delta-io/delta v4.4.0, SchemaUtils.checkFieldNames, for tables without column mapping.
NO_NAME = re.compile(r"[ ,;{}()\n\t=\x00-\x1f]")
# Fields that `add.fields` adds to an unwrapped row, each after two underscores.
# Source: Debezium's reference, "New Record State Extraction", and `source` of its connectors
_EVENT_FIELDS = (
    "op deleted before ts_ms ts_us ts_ns version connector name snapshot db schema table "
    "collection sequence lsn xmin txId file pos row server_id gtid thread query scn "
    "commit_scn lcr_position rs_id ssn redo_thread user_name ord change_lsn commit_lsn "
    "event_serial_no changeLsn commitLsn wallTime lsid txnNumber rs h keyspace shard vgtid "
    "partition cluster"
)
_EVENT_FIELD_NAMES = frozenset(_EVENT_FIELDS.split())


def others_in_object(
    document: Mapping[str, Any], text: str, landing: Landing, fields: Mapping[str, str]
) -> str | None:
    """The undeclared fields of a JSON object, or of an event's row, with values as in its `text`.

    `None` if there are none. An undeclared member of a declared STRUCT is listed by its path, such
    as `address.city`.
    """
    path = _paths_to_rows(document, landing, fields)[-1]  # the row after the change, if any
    members = reduce(_object_in, path, document)
    row = {name: members[name] for name in members if not _is_of_the_event(name, landing)}
    if not _has_others(row, fields):
        return None
    for name in path:
        text = members_of(text)[name]
    return _joined(_others(row, text, fields))


def _has_others(row: Mapping[str, Any], fields: Mapping[str, str]) -> bool:
    for name, value in row.items():
        if value is None:
            continue
        if name not in fields:
            return True
        types = struct_types(fields[name])
        if types and _has_others(_object_in(row, name), types):
            return True
    return False


def _others(
    row: Mapping[str, Any], text: str, fields: Mapping[str, str], path: str = ""
) -> Iterator[tuple[str, str]]:
    """The undeclared members of a row, each with its JSON text."""
    texts = members_of(text)
    for name, value in row.items():
        if name not in fields and value is not None:
            yield f"{path}{name}", texts[name]
        types = struct_types(fields.get(name, ""))
        inner = _object_in(row, name)
        if types and _has_others(inner, types):
            yield from _others(inner, texts[name], types, f"{path}{name}.")


def with_texts(
    document: Mapping[str, Any], text: str, landing: Landing, types: Mapping[str, str]
) -> str:
    """The text of an object or event, with some values of declared STRING columns as JSON strings.

    These are fractions, objects and arrays. Spark would otherwise round the numbers in them.
    """
    for path in _paths_to_rows(document, landing, types):
        names = set[str]()
        for name, value in reduce(_object_in, path, document).items():
            is_text = type_word(types.get(name, "")) == "STRING"
            if is_text and isinstance(value, float | dict | list):
                names.add(name)
        if names:
            text = _with_texts_below(text, path, names)
    return text


def _with_texts_below(text: str, path: Sequence[str], names: Set[str]) -> str:
    """The text of an object, with the named members of the object at `path` as JSON strings."""
    members = members_of(text)
    if path:
        first, *rest = path
        members[first] = _with_texts_below(members[first], rest, names)
    else:
        for name in members.keys() & names:
            members[name] = json.dumps(members[name], ensure_ascii=False)
    return _joined(members.items()) or text


def _paths_to_rows(
    document: Mapping[str, Any], landing: Landing, fields: Mapping[str, str]
) -> list[list[str]]:
    """The path to each row of a line: `before` and `after` of an event, or the line itself."""
    changes = landing.changes
    if not isinstance(changes, Debezium):
        return [[]]
    is_column = changes.unwrapped and "payload" in fields
    is_wrapped = isinstance(document.get("payload"), dict) and not is_column
    envelope = ["payload"] if is_wrapped else []
    return [envelope] if changes.unwrapped else [[*envelope, "before"], [*envelope, "after"]]


def columns_in_force(names: Iterable[str], landing: Landing) -> tuple[str, ...]:
    """The added columns, each once, without columns that were declared or renamed afterwards."""
    declared = _declared(landing)
    earlier = earlier_names(landing)
    return tuple(
        name
        for name in dict.fromkeys(names)
        if name.lower() not in declared and name not in earlier
    )


@dataclass(slots=True)
class NewColumns:
    """Collects the columns that the undeclared fields of a batch need, besides the `known` ones.

    Each added column is a STRING. A field goes to the column `_rescued` if its name is not valid
    for a column or differs from another one only in case, if there are too many columns, or if the
    table (`table_types`) still has an undeclared column of this name with another type.

    `_taken` maps a lower-case name to the spelling of its added column; `None`: it gets no column.
    """

    landing: Landing
    known: Sequence[str]
    table_types: Mapping[str, str] = field(default_factory=dict[str, str])
    _names: dict[str, None] = field(default_factory=dict[str, None])
    _taken: dict[str, str | None] = field(default_factory=dict[str, str | None])

    def __post_init__(self) -> None:
        self._taken = dict.fromkeys(_declared(self.landing))
        self._taken |= {name.lower(): name for name in self.known}

    def see(self, undeclared: str) -> None:
        """Collects the undeclared fields of one record, a JSON object."""
        is_added = self.landing.new_columns == "add"
        self.see_names(json.loads(undeclared) if is_added else [RESCUED])

    def see_names(self, names: Iterable[str]) -> None:
        """Collects undeclared fields, as the policy `new_columns` requires."""
        if self.landing.new_columns == "refuse":
            return
        for name in names:
            is_column = self.landing.new_columns == "add" and self._can_be_added(name)
            self._names[name if is_column else RESCUED] = None

    def see_columns(self, names: Iterable[str]) -> None:
        """Collects the undeclared ones of a file's columns."""
        earlier = earlier_names(self.landing)
        declared = field_names(self.landing.schema)
        present = [earlier.get(name, name) for name in names]
        self.see_names(name for name in present if name not in declared)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns to add, without the `known` columns."""
        return tuple(name for name in self._names if name not in self.known)

    def _can_be_added(self, name: str) -> bool:
        """Whether the field gets its own column. Of names that differ in case, the first does."""
        if name.lower() not in self._taken:
            is_name = (
                0 < len(name) <= _LONGEST_NAME
                and not name.startswith("_")
                and "." not in name
                and not NO_NAME.search(name)
            )
            spellings = {each.lower(): each for each in self.table_types}
            spelling = spellings.get(name.lower(), name)
            is_in_table_as_text = spelling == name and self.table_types.get(name) in (
                None,
                "string",
            )
            added_count = sum(each is not None for each in self._taken.values())
            has_room = added_count + len(self.landing.column_names) < MOST_COLUMNS
            is_added = is_name and is_in_table_as_text and has_room
            self._taken[name.lower()] = name if is_added else None
        return self._taken[name.lower()] == name


def _declared(landing: Landing) -> set[str]:
    return {name.lower() for name in (*field_names(landing.schema), *landing.column_names)}


def _object_in(row: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The member of this name if it is an object, otherwise an empty object."""
    value = row.get(name)
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _is_of_the_event(name: str, landing: Landing) -> bool:
    """Whether this field of an unwrapped Debezium row comes from the event, not from the row."""
    changes = landing.changes
    if not name.startswith("__") or not isinstance(changes, Debezium) or not changes.unwrapped:
        return False
    is_listed = (
        name[2:] in _EVENT_FIELD_NAMES
        or name.startswith(("__source", "__transaction"))
        or name[2:] in field_names(changes.position)
    )
    # A field that a connector adds and that is not listed here must not refuse every line.
    return is_listed or landing.new_columns == "refuse"


def _joined(members: Iterable[tuple[str, str]]) -> str | None:
    parts = [*members]
    return object_of(parts) if parts else None
