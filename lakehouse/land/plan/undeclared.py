"""Finds fields of landed records that the declaration does not name, and adds columns for them.

The undeclared fields of a record are kept as one JSON object, with each value as it was sent.
`Landing.new_columns` decides whether these fields become columns. A null field counts as absent, as
it does in a declared column.

**Safety properties** (tests in `test_undeclared.py`)
- Every non-null field of a record is either declared, or kept in the object with its value, except
  fields that count as added to the row by Debezium itself (`_is_of_the_event`).
- No batch changes the name or type of an added column. A record that does not fit is quarantined.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import reduce
from math import isfinite
from typing import Any, cast

from lakehouse.declare.change_sources import Debezium
from lakehouse.declare.landing import Landing
from lakehouse.delta.columns import field_names, struct_types, type_word
from lakehouse.land.plan.json_members import members_of, object_of
from lakehouse.land.plan.records import earlier_names

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
# Kinds of JSON numbers. A "large" number is a whole number that a DOUBLE may not hold exactly.
WHOLE = "whole"
LARGE = "large"
FRACTION = "fraction"
EXACT_IN_DOUBLE = 2**53
_TYPES: dict[str, str] = {WHOLE: "BIGINT", LARGE: "BIGINT", FRACTION: "DOUBLE"}
_WIDER: dict[frozenset[str], str] = {
    frozenset((WHOLE, LARGE)): LARGE,
    frozenset((WHOLE, FRACTION)): FRACTION,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedColumn:
    """A column that was added at `at_ms` for an undeclared field of `file`.

    `policy` is `Landing.new_columns` at that time, or "infer" if an earlier version of this program
    inferred the schema.
    """

    name: str
    type: str
    file: str
    policy: str
    at_ms: int


def others_in_object(
    document: Mapping[str, Any], text: str, landing: Landing, fields: Mapping[str, str]
) -> str | None:
    """The undeclared fields of a JSON object, or of an event's row, with values as in its `text`.

    `None` if there are none. An undeclared member of a declared STRUCT is listed below the name of
    the STRUCT. If `new_columns` is "refuse", it is listed by its path, such as `address.city`.
    """
    path = _paths_to_rows(document, landing, fields)[-1]  # the row after the change, if any
    members = reduce(_object_in, path, document)
    row = {name: members[name] for name in members if not _is_of_the_event(name, landing)}
    if not _has_others(row, fields):
        return None
    for name in path:
        text = members_of(text)[name]
    return _joined(_others(row, text, fields, by_path=landing.new_columns == "refuse"))


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
    row: Mapping[str, Any], text: str, fields: Mapping[str, str], *, by_path: bool
) -> Iterator[tuple[str, str]]:
    """The undeclared members of a row, each with its JSON text."""
    texts = members_of(text)
    for name, value in row.items():
        if name not in fields and value is not None:
            yield name, texts[name]
        types = struct_types(fields.get(name, ""))
        inner = _object_in(row, name)
        if not types or not _has_others(inner, types):
            continue
        inner_others = [*_others(inner, texts[name], types, by_path=by_path)]
        if by_path:
            yield from ((f"{name}.{member}", each) for member, each in inner_others)
        else:
            yield name, _joined(inner_others) or ""


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


def others_in_row(
    row: Mapping[str, Any], fields: Mapping[str, str], *, by_path: bool = False
) -> str | None:
    """The undeclared members of a row of JSON values, in the same form as `others_in_object`."""
    if not _has_others(row, fields):
        return None
    return _joined(_others(row, json.dumps(row, ensure_ascii=False), fields, by_path=by_path))


def columns_in_force(columns: Iterable[AddedColumn], landing: Landing) -> tuple[AddedColumn, ...]:
    """The added columns, each once, without columns that were declared or renamed afterwards."""
    added = {column.name: column for column in columns}
    earlier = earlier_names(landing)
    undeclared = [each for each in added.values() if each.name.lower() not in _declared(landing)]
    return tuple(column for column in undeclared if column.name not in earlier)


@dataclass(slots=True)
class NewColumns:
    """Collects the columns that the undeclared fields of a batch need, besides the `known` ones.

    Whole numbers become BIGINT, other numbers DOUBLE, and true and false BOOLEAN. Everything else
    becomes STRING, also a field with values of several kinds, or with numbers that a DOUBLE would
    round. A field goes to the column `_rescued` if its name is not valid for a column or differs
    from another one only in case, if there are too many columns, or if the table (`table_types`)
    still has an undeclared column of this name with another type.

    `kinds` maps columns to their type, or kind of number, and the first file with the field.
    `_taken` maps a lower-case name to the spelling of its added column; `None`: it gets no column.
    """

    landing: Landing
    known: Sequence[AddedColumn]
    table_types: Mapping[str, str] = field(default_factory=dict[str, str])
    kinds: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    _taken: dict[str, str | None] = field(default_factory=dict[str, str | None])

    def __post_init__(self) -> None:
        self._taken = dict.fromkeys(_declared(self.landing))
        self._taken |= {column.name.lower(): column.name for column in self.known}

    def see(self, undeclared: str, file: str) -> None:
        """Collects the undeclared fields of one record, as the policy `new_columns` requires."""
        if self.landing.new_columns == "refuse":
            return
        is_added = self.landing.new_columns == "add"
        values = json.loads(undeclared) if is_added else {RESCUED: undeclared}
        self.see_types({name: _kind_of(value) for name, value in values.items()}, file)

    def see_types(self, types: Mapping[str, str], file: str) -> None:
        """Collects fields with their types, or with the kinds of their JSON numbers."""
        for name, type_ in types.items():
            column, kind = (name, type_) if self._can_be_added(name) else (RESCUED, "STRING")
            earlier_kind, first_file = self.kinds.get(column, (kind, file))
            if earlier_kind != kind:
                kind = _WIDER.get(frozenset((earlier_kind, kind)), "STRING")
            self.kinds[column] = (kind, first_file)

    def columns(self, at_ms: int) -> tuple[AddedColumn, ...]:
        """The columns to add, without the `known` columns."""
        types = dict[str, tuple[str, str]]()
        for name, (kind, file) in self.kinds.items():
            type_ = _TYPES.get(kind, kind)
            if self._fits_table(name, type_):
                types.setdefault(name, (type_, file))
            else:
                types.setdefault(RESCUED, ("STRING", file))
        known = {column.name for column in self.known}
        policy = self.landing.new_columns
        return tuple(
            AddedColumn(name=name, type=type_, file=file, policy=policy, at_ms=at_ms)
            for name, (type_, file) in types.items()
            if name not in known
        )

    def _fits_table(self, name: str, type_: str) -> bool:
        """Whether the table lacks the column, or has it with the same spelling and type."""
        spellings = {each.lower(): each for each in self.table_types}
        spelling = spellings.get(name.lower())
        is_same = spelling == name and self.table_types[name] == type_.lower()
        return spelling is None or is_same

    def _can_be_added(self, name: str) -> bool:
        """Whether the field gets its own column. Of names that differ in case, the first does."""
        if name.lower() not in self._taken:
            is_name = (
                0 < len(name) <= _LONGEST_NAME
                and not name.startswith("_")
                and not NO_NAME.search(name)
            )
            added_count = sum(each is not None for each in self._taken.values())
            has_room = added_count + len(self.landing.column_names) < MOST_COLUMNS
            self._taken[name.lower()] = name if is_name and has_room else None
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


def _kind_of(value: object) -> str:
    match value:
        case bool():
            return "BOOLEAN"
        case int() if -(2**63) <= value < 2**63:
            return WHOLE if abs(value) <= EXACT_IN_DOUBLE else LARGE
        case float() if isfinite(value):
            return FRACTION
        case _:
            return "STRING"
