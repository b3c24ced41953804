"""The records of a landed file, and the names of their fields: declared, earlier, or undeclared.

The undeclared fields of a record are kept as one JSON object, with each value as it was sent.
`Landing.new_columns` decides whether these fields become columns. A null field counts as absent, as
it does in a declared column.

**Safety properties** (tests in `test_records.py`)
- Every non-null field of a record, and each member of a declared STRUCT, is either declared, or
  kept in the object with its value, except fields that count as added to the row by Debezium itself
  (`is_of_the_event`).
- No batch changes the name of an added column. All of them are STRING, so each value fits.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple, cast

from lakehouse.base.frozen import frozen
from lakehouse.declare.landing import Debezium, Dms, Landing
from lakehouse.declare.table import Table
from lakehouse.delta.columns import field_names, struct_types, type_word

MIB = 1024 * 1024
# The maximum size of a record. Jackson, which parses JSON for Spark, accepts no text of more than
# 20,000,000 characters. Source: jackson-core, StreamReadConstraints.DEFAULT_MAX_STRING_LEN
MAX_RECORD_BYTES = 16 * MIB
# Only this many bytes of a record above the limit are kept, so that people can identify the record.
SHOWN_BYTES = 1_000
# The names of UTF-8, which needs no decoding.
UTF_8 = ("utf-8", "utf8")

NOT_JSON = "not JSON"
NOT_UTF_8 = "not UTF-8"
TOO_DEEP = "a value is nested too deeply"
# The beginning of the reason for a CSV record that cannot be split into its fields.
FIELD_COUNT = "it has more or fewer fields than the "
UNFIT = "a field does not fit the schema"
# The zones that a time may have: an offset, UTC, or the name of a region.
ZONE = r"(?:Z|(?:UTC|GMT)?(?:[-+][0-9:]+)?|[A-Za-z_]+/[A-Za-z0-9_+/-]+)"
_NUMBER = r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)"
_WHOLE = r"^[-+]?[0-9]+$"
_DOUBLE = rf"^\s*(?:{_NUMBER}(?:[eE][-+]?[0-9]+)?|[-+]?Inf(?:inity)?|NaN)\s*$"
_DAY = r"[-+]?[0-9]{4,7}-[0-9]{1,2}-[0-9]{1,2}"
_DECIMAL = rf"^{_NUMBER}(?:[eE][-+]?[0-9]{{1,3}})?$"
# Digits grouped as in English. `1,234` without a point may be a fraction.
GROUPED = r"^[-+]?[0-9]{1,3}(?:,[0-9]{3})+\.[0-9]+$"
_CLOCK = r"[0-9]{1,2}(?::[0-9]{1,2}(?::[0-9]{1,2}(?:\.[0-9]*)?)?)?"
# The form of a text, from `^` to `$`, by Spark's name of the type. For other types, only Spark's
# cast decides.
FORMS = {
    "byte": _WHOLE,
    "short": _WHOLE,
    "integer": _WHOLE,
    "long": _WHOLE,
    "float": _DOUBLE,
    "double": _DOUBLE,
    "decimal": _DECIMAL,
    "boolean": "^(?i:true|false)$",
    # A day, optionally with midnight in UTC.
    "date": rf"^\s*{_DAY}(?:[T ]\s*00?:00(?::00(?:\.0+)?)?\s*(?:Z|UTC|[-+]00:?00)?)?\s*$",
    # A month or a day. After a day, a time and a zone may follow.
    "timestamp": r"^\s*[-+]?[0-9]{4,7}-[0-9]{1,2}"
    rf"(?:-[0-9]{{1,2}}(?:[T ]\s*(?:{_CLOCK}\s*)?{ZONE})?)?\s*$",
    # The cast would drop a zone.
    "timestamp_ntz": r"^\s*[-+]?[0-9]{4,7}-[0-9]{1,2}"
    rf"(?:-[0-9]{{1,2}}(?:[T ]\s*{_CLOCK})?)?\s*$",
}
_PLAIN_WHOLE = r"-?(?:0|[1-9][0-9]{0,17})"
_PLAIN_FRACTION = rf"{_PLAIN_WHOLE}(?:\.[0-9]{{1,25}})?"
_PLAIN_DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_PLAIN_CLOCK = r"[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?"
# The forms of texts that each reader of Spark parses into the same value, or refuses, by the first
# word of the declared type.
PLAIN_FORMS = {
    **dict.fromkeys(("SMALLINT", "INT", "BIGINT"), _PLAIN_WHOLE),
    "TINYINT": r"-?(?:0|[1-9][0-9]?)",
    "BOOLEAN": "true|false",
    "DECIMAL": _PLAIN_FRACTION,
    "DOUBLE": rf"{_PLAIN_FRACTION}(?:[eE][-+]?[0-9]{{1,2}})?",
    "FLOAT": _PLAIN_FRACTION,
    "DATE": _PLAIN_DAY,
    "TIMESTAMP": rf"{_PLAIN_DAY}(?:{_PLAIN_CLOCK}(?:Z|[-+][0-9]{{2}}:[0-9]{{2}})?)?",
    "TIMESTAMP_NTZ": rf"{_PLAIN_DAY}(?:{_PLAIN_CLOCK})?",
}


class Unreadable(Exception):
    """No record of a file can be read. The message gives the reason, and what to do."""


class CsvFields(NamedTuple):
    """The names of the fields of a file's records, and whether they come from its header."""

    names: tuple[str, ...]
    has_header: bool


class Record(NamedTuple):
    """One record of a landed file.

    - `line`: the number of its first line, from 1.
    - `content`: its bytes without the line break. In JSON, some values of STRING fields are
      replaced with JSON strings (`with_texts`).
    - `problem`: why it cannot be a row; `None` if parsing decides.
    - `undeclared`: the fields of JSON that the schema does not name, as a JSON object.
    - `event`: a text that is parsed instead of the content. It is the decoded event of a Debezium
      line (`null` for a tombstone), or a JSON record with present names in place of earlier ones.
    - `fields`: the fields of a CSV file.
    """

    line: int
    content: bytes
    problem: str | None = None
    undeclared: str | None = None
    event: str | None = None
    fields: CsvFields | None = None


@frozen
class RenamedLanding(Landing):
    """A landing whose files may also have fields under their earlier names.

    `earlier_names` maps each earlier name to the present name, from `Table.renamed`. A field is
    renamed when its record is staged. Therefore, later steps see only present names, and Spark
    parses each record once.
    """

    earlier_names: Mapping[str, str]


def with_renamed_fields(table: Table) -> Table:
    """The table with a landing that also accepts earlier names of its renamed columns."""
    return replace(table, source=with_earlier_names(table.landing, table.renamed))


def with_earlier_names(landing: Landing, renamed: Mapping[str, str]) -> Landing:
    """The landing for files that may still have the earlier names of the `renamed` columns."""
    if not renamed:
        return landing
    # Files have no derived columns, under any name.
    names = {old: new for old, new in renamed.items() if new not in landing.derived}
    if isinstance(landing.changes, Dms):
        # A renamed column's before-image has the new name, too.
        prefix = landing.changes.before_prefix
        declared = landing.field_names
        images = {f"{prefix}{old}": f"{prefix}{new}" for old, new in names.items()}
        names |= {old: new for old, new in images.items() if new in declared}
    declaration = {each.name: getattr(landing, each.name) for each in fields(Landing)}
    return RenamedLanding(**declaration, earlier_names=names)


def earlier_names(landing: Landing) -> Mapping[str, str]:
    """Maps the earlier name of each renamed field to its present name."""
    return landing.earlier_names if isinstance(landing, RenamedLanding) else {}


def present_names(names: Sequence[str], landing: Landing) -> list[str]:
    """The present names of a file's columns.

    Raises:
        Unreadable: the file has a column under two names.
    """
    earlier = earlier_names(landing)
    present = [earlier.get(name, name) for name in names]
    if len({*present}) < len(present):
        [(name, _)] = Counter(present).most_common(1)
        raise Unreadable(f"it has two names for {name}. Land the file with one of them")
    return present


def too_large(limit: int) -> Unreadable:
    """The error for a file that unpacks to more than `limit` bytes."""
    return Unreadable(
        f"it unpacks to more than {limit} bytes; land its records in smaller files, or raise "
        "Landing.max_file_bytes"
    )


_MEMBER = re.compile(r'[\s{,]*("(?:[^"\\]|\\.)*+")\s*:\s*')
# Reads the JSON value at a position, and returns it with the position after it.
_scanned: Callable[[str, int], tuple[Any, int]] = vars(json.JSONDecoder())["scan_once"]
# The beginning of `PresentRow.problem`.
TWO_NAMES = "different values under two names of a column: "
# Decodes each number to its text, because two different numbers may be the same float.
_spelled_value = json.JSONDecoder(parse_float=str, parse_int=str).decode
_json_text = json.JSONEncoder(ensure_ascii=False).encode


class PresentRow(NamedTuple):
    """A row whose fields have their present names, as a value and as JSON text.

    `earlier` maps the present names of renamed fields to the earlier ones. There is a `problem` if
    two names of a column have different values, neither of which is null.
    """

    row: dict[str, Any]
    text: str
    earlier: Mapping[str, str] = {}
    problem: str | None = None


def members_of(text: str) -> dict[str, str]:
    """The members of a JSON object, each value as the text spells it."""
    members = dict[str, str]()
    position = 0
    while match := _MEMBER.match(text, position):
        spelled = match[1]
        _, position = _scanned(text, match.end())
        name = spelled[1:-1] if "\\" not in spelled else json.loads(spelled)
        members[name] = text[match.end() : position]
    return members


def object_of(members: Mapping[str, str]) -> str:
    """The JSON object with these members, whose values are JSON texts."""
    parts = [f"{_json_text(name)}: {value}" for name, value in members.items()]
    return f"{{{', '.join(parts)}}}"


def with_present_names(row: dict[str, Any], text: str, names: Mapping[str, str]) -> PresentRow:
    """A row with each earlier name of a field in `names` replaced by its present name.

    Nothing is changed if the row has no earlier name. If the present name is missing or null, it
    gets the value of the earlier name.
    """
    earlier_names = [name for name in names if name in row]
    if not earlier_names:
        return PresentRow(row, text)
    members = members_of(text)
    present_row = {name: value for name, value in row.items() if name not in names}
    texts = {name: members[name] for name in present_row}
    earlier = dict[str, str]()
    problem: str | None = None
    for name in earlier_names:
        present = names[name]
        value = row[name]
        if present_row.get(present) is None:
            present_row[present] = value
            texts[present] = members[name]
            earlier[present] = name
        elif value is not None and _canonical(members[name]) != _canonical(texts[present]):
            problem = problem or f"{TWO_NAMES}{name} and {earlier.get(present, present)}"
    return PresentRow(present_row, object_of(texts), earlier, problem)


def _canonical(text: str) -> str:
    """The same text for JSON texts of the same value. `1` counts as `"1"`, but not as `1.0`."""
    return json.dumps(_spelled_value(text), sort_keys=True)


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


def others_in_object(row: Mapping[str, Any], text: str, fields: Mapping[str, str]) -> str | None:
    """The undeclared fields of a row, with values as in its `text`; `None` if there are none.

    An undeclared member of a declared STRUCT is listed by its path, such as `address.city`.
    """
    paths = [*_other_paths(row, fields)]
    if not paths:
        return None
    members = members_of(text)
    others = dict[str, str]()
    for path in paths:
        value = members[path[0]]
        for name in path[1:]:
            value = members_of(value)[name]
        others[".".join(path)] = value
    return object_of(others)


def _other_paths(row: Mapping[str, Any], fields: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """The path of each undeclared member of a row that is not null."""
    for name, value in row.items():
        types = struct_types(fields.get(name, ""))
        if name not in fields and value is not None:
            yield (name,)
        elif types and isinstance(value, dict):
            inner = cast("dict[str, Any]", value)
            yield from ((name, *path) for path in _other_paths(inner, types))


def with_texts(row: Mapping[str, Any], text: str, types: Mapping[str, str]) -> str:
    """The text of a row, with some values of declared STRING columns as JSON strings.

    These are fractions, objects and arrays. Spark would otherwise round the numbers in them.
    """
    names = set[str]()
    for name, value in row.items():
        if type_word(types.get(name, "")) == "STRING" and isinstance(value, float | dict | list):
            names.add(name)
    if not names:
        return text
    members = members_of(text)
    for name in names:
        members[name] = _json_text(members[name])
    return object_of(members)


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
        declared = self.landing.field_names
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
            is_text = self.table_types.get(spelling, "string") == "string"
            added_count = sum(each is not None for each in self._taken.values())
            has_room = added_count + len(self.landing.column_names) < MOST_COLUMNS
            is_added = is_name and spelling == name and is_text and has_room
            self._taken[name.lower()] = name if is_added else None
        return self._taken[name.lower()] == name


def _declared(landing: Landing) -> set[str]:
    return {name.lower() for name in (*landing.field_names, *landing.column_names)}


def is_of_the_event(name: str, landing: Landing) -> bool:
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
