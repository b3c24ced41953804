"""Suggests the declaration of a text file: its columns and their types, by its values."""

import csv
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from lakehouse.land.plan.records import MAX_RECORD_BYTES
from lakehouse.land.plan.undeclared import NO_NAME

_WHOLE = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})")
_FRACTION = re.compile(r"[-+]?(?:0|[1-9][0-9]*)?\.[0-9]+(?:[eE][-+]?[0-9]+)?")
_COMMA_FRACTION = re.compile(r"[-+]?(?:0|[1-9][0-9]*),[0-9]+")
_BOOLEAN = re.compile(r"(?i:true|false)")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?"
    r"(?:Z| ?UTC| ?[-+][0-9]{2}:?[0-9]{2})?"
)
_TYPES = {
    "BIGINT": _WHOLE,
    "DOUBLE": _FRACTION,
    "BOOLEAN": _BOOLEAN,
    "DATE": _DATE,
    "TIMESTAMP": _TIME,
}
# The type that holds the values of two types; of any other two, STRING does.
_COMMON: dict[frozenset[str], str] = {
    frozenset(("BIGINT", "DOUBLE")): "DOUBLE",
    frozenset(("DATE", "TIMESTAMP")): "TIMESTAMP",
}
# Words that tools write for a missing value.
_NULLS = ("NA", "NULL", "null", "\\N", "NaN", "nan", "None", "N/A", "n/a", "-", "?")
_DELIMITERS = ",;\t|"

# A type of JSON values: the name of an SQL type, the type of an array's elements, or the members of
# an object. `None`: only nulls were seen.
_Kind = str | tuple["_Kind | None"] | dict[str, "_Kind | None"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SuggestedSchema:
    """The columns of a file with SQL types, and what else a declaration of the file needs.

    `left_out` are fields whose name cannot be a column. They follow `Landing.new_columns`.
    """

    types: Mapping[str, str]
    left_out: tuple[str, ...] = ()
    delimiter: str = ","
    decimal: str = "."
    null_value: str | None = None

    @property
    def ddl(self) -> str:
        """The schema as Spark's DDL."""
        return ", ".join(f"{quoted(name)} {type_}" for name, type_ in self.types.items())


def with_valid_names(types: Mapping[str, str]) -> SuggestedSchema:
    """The schema of a file with these columns. A column with an invalid name is left out."""
    taken = dict[str, str]()
    for name in types:
        is_valid = bool(name) and not name.startswith("_") and not NO_NAME.search(name)
        if is_valid and name.lower() not in taken:
            taken[name.lower()] = name
    kept = {name: types[name] for name in taken.values()}
    return SuggestedSchema(types=kept, left_out=tuple(name for name in types if name not in kept))


def csv_schema(text: str) -> SuggestedSchema:
    """The schema of CSV text with a header, by the values of all its records."""
    csv.field_size_limit(MAX_RECORD_BYTES)  # with another delimiter, a wide record is one field
    delimiter = _delimiter(text)
    header, *records = csv.reader(text.splitlines(keepends=True), delimiter=delimiter)
    names = [name.strip() or f"_c{place}" for place, name in enumerate(header)]
    records = [record for record in records if len(record) == len(names)]
    columns = {name: [record[place] for record in records] for place, name in enumerate(names)}
    decimal = "."
    if delimiter != "," and _has_comma_fractions(columns.values()):
        decimal = ","
    null_value = _null_value(columns.values(), decimal)
    types = {name: _type_of_texts(values, null_value, decimal) for name, values in columns.items()}
    plain = with_valid_names(types)
    return SuggestedSchema(
        types=plain.types,
        left_out=plain.left_out,
        delimiter=delimiter,
        decimal=decimal,
        null_value=null_value,
    )


def json_schema(objects: Iterable[Mapping[str, Any]]) -> SuggestedSchema:
    """The schema of JSON objects, by all their values. A field that is always null is left out."""
    kinds = dict[str, _Kind | None]()
    for each in objects:
        for name, value in each.items():
            kinds[name] = _kind_of_both(kinds.get(name), _kind_of_value(value))
    types = {name: _ddl_of(kind) for name, kind in kinds.items()}
    return with_valid_names({name: type_ for name, type_ in types.items() if type_})


def json_objects(text: str) -> list[Mapping[str, Any]]:
    """The objects of JSON lines, or of one array. Other lines are skipped."""
    if text.lstrip().startswith("["):
        values = cast("list[Any]", json.loads(text))
    else:
        values = [_decoded(line) for line in text.splitlines() if line.strip()]
    return [cast("Mapping[str, Any]", value) for value in values if isinstance(value, dict)]


def quoted(name: str) -> str:
    """The name as DDL has it: in backticks if it is no plain word."""
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else f"`{name.replace('`', '``')}`"


def _decoded(line: str) -> object:
    try:
        return json.loads(line)
    except ValueError:
        return None


def _delimiter(text: str) -> str:
    """The delimiter with which most of the first records have the same number of fields."""
    lines = text.splitlines(keepends=True)[:200]

    def score(delimiter: str) -> tuple[int, int]:
        counts = Counter(len(record) for record in csv.reader(lines, delimiter=delimiter) if record)
        fields, records = counts.most_common(1)[0] if counts else (1, 0)
        return (records if fields > 1 else 0, fields)

    return max(_DELIMITERS, key=score)


def _null_value(columns: Iterable[Sequence[str]], decimal: str) -> str | None:
    """The word for a missing value in columns whose other values are no plain texts."""
    counts = Counter[str]()
    for values in columns:
        present = {value.strip() for value in values} - {""}
        words = present & {*_NULLS}
        others = [*(present - words)]
        if words and others and _type_of_texts(others, None, decimal) != "STRING":
            counts.update(value.strip() for value in values if value.strip() in words)
    return counts.most_common(1)[0][0] if counts else None


def _has_comma_fractions(columns: Iterable[Sequence[str]]) -> bool:
    for values in columns:
        present = {value.strip() for value in values} - {"", *_NULLS}
        numbers = [value for value in present if _COMMA_FRACTION.fullmatch(value)]
        if numbers and all(value in numbers or _WHOLE.fullmatch(value) for value in present):
            return True
    return False


def _type_of_texts(values: Sequence[str], null_value: str | None, decimal: str) -> str:
    found: _Kind | None = None
    for text in {value.strip() for value in values} - {"", null_value}:
        if decimal == ",":
            text = text.translate(str.maketrans(",.", ".,"))
        found = _kind_of_both(found, _type_of_text(text))
        if found == "STRING":
            break
    return str(found or "STRING")


def _type_of_text(text: str) -> str:
    return next((name for name, form in _TYPES.items() if form.fullmatch(text)), "STRING")


def _kind_of_value(value: object) -> _Kind | None:
    match value:
        case None:
            return None
        case bool():
            return "BOOLEAN"
        case int():
            return "BIGINT" if -(2**63) <= value < 2**63 else "STRING"
        case float():
            return "DOUBLE"
        case str():
            type_ = _type_of_text(value)
            return type_ if type_ in ("DATE", "TIMESTAMP") else "STRING"
        case list():
            element: _Kind | None = None
            for each in cast("list[object]", value):
                element = _kind_of_both(element, _kind_of_value(each))
            return (element,)
        case _:
            members = cast("dict[str, object]", value)
            return {name: _kind_of_value(member) for name, member in members.items()}


def _kind_of_both(first: _Kind | None, second: _Kind | None) -> _Kind | None:
    """The kind that holds the values of both."""
    match first, second:
        case (None, kind) | (kind, None):
            return kind
        case (dict(), dict()):
            return {
                name: _kind_of_both(first.get(name), second.get(name))
                for name in {**first, **second}
            }
        case (tuple(), tuple()):
            return (_kind_of_both(first[0], second[0]),)
        case (str(), str()) if first != second:
            return _COMMON.get(frozenset((first, second)), "STRING")
        case _:
            return first if first == second else "STRING"


def _ddl_of(kind: _Kind | None) -> str | None:
    """The SQL type; `None` if it is unknown, as of an array that is always empty."""
    match kind:
        case None | str():
            return kind
        case tuple():
            element = _ddl_of(kind[0])
            return element and f"ARRAY<{element}>"
        case dict():
            types = {name: _ddl_of(member) for name, member in kind.items()}
            texts = [f"{quoted(name)}: {type_}" for name, type_ in types.items() if type_]
            is_valid = len({name.lower() for name in kind}) == len(kind)
            if not is_valid:
                return "STRING"
            return f"STRUCT<{', '.join(texts)}>" if texts else None
