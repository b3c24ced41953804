"""The records of a landed file, and the names of their fields, which may be earlier names."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

from lakehouse.declare.change_sources import Dms
from lakehouse.declare.landing import Landing
from lakehouse.declare.table import Table
from lakehouse.delta.columns import field_names

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


class Unreadable(Exception):
    """No record of a file can be read. The message gives the reason, and what to do."""


class CsvFields(NamedTuple):
    """The names of the fields of a file's records in their order, and if they are its header."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
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
        declared = field_names(landing.schema)
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


def object_of(members: Iterable[tuple[str, str]]) -> str:
    """The JSON object with these members."""
    parts = [f"{_spelled(name)}: {value}" for name, value in members]
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
        elif value is not None and not _is_same(members[name], texts[present]):
            problem = problem or f"{TWO_NAMES}{name} and {earlier.get(present, present)}"
    return PresentRow(present_row, object_of(texts.items()), earlier, problem)


def _is_same(one: str, other: str) -> bool:
    """Whether two JSON texts have the same value.

    `1.0` and `1.00` count as different, but `1` and `"1"` as the same.
    """
    if one == other:
        return True
    return _canonical(one) == _canonical(other)


def _canonical(text: str) -> str:
    return json.dumps(_spelled_value(text), sort_keys=True)


def _spelled(name: str) -> str:
    return f'"{name}"' if name.isidentifier() else json.dumps(name, ensure_ascii=False)
