"""Suggests the declaration of a text file: its columns and their types, by its values."""

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

from lakehouse.base.text import first_names
from lakehouse.declare.landing import Csv
from lakehouse.land.plan.records import MAX_RECORD_BYTES, NO_NAME, Unreadable

# Digits in groups, which only a DECIMAL accepts (`land.parse_lines`); or a plain number.
_GROUPED = re.compile(r"[-+]?(?:[0-9]{1,3}(?:,[0-9]{3})+(?=\.)|[0-9]+)(?:\.[0-9]{1,18})?")
_TYPES = {
    "BIGINT": re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})"),
    "DOUBLE": re.compile(r"[-+]?(?:0|[1-9][0-9]*)?\.[0-9]+(?:[eE][-+]?[0-9]+)?"),
    "BOOLEAN": re.compile(r"(?i:true|false)"),
    "DATE": re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}"),
    "TIMESTAMP": re.compile(
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?"
        r"(?:Z| ?UTC| ?[-+][0-9]{2}:?[0-9]{2})?"
    ),
}
# The type that holds the values of two types; of any other two, STRING does.
_COMMON: dict[frozenset[str], str] = {
    frozenset(("BIGINT", "DOUBLE")): "DOUBLE",
    frozenset(("DATE", "TIMESTAMP")): "TIMESTAMP",
}
_SWAPPED = str.maketrans(",.", ".,")
# Words that tools write for a missing value.
_NULLS = ("NA", "NULL", "null", "\\N", "NaN", "nan", "None", "N/A", "n/a", "-", "?")
_DELIMITERS = ",;\t|"

# Rows that are kept to look at: enough to see whether a column is a key.
_KEPT_ROWS = 1_000

# A type of JSON values: the name of an SQL type, the type of an array's elements, or the members of
# an object. `None`: only nulls were seen.
_Kind = str | tuple["_Kind | None"] | dict[str, "_Kind | None"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSchema:
    """What a file suggests to declare: its columns with SQL types, and its format.

    `renamed` maps names that cannot be columns to the names of their columns. The values of the
    fields in `left_out` follow `Landing.new_columns`. `rows` are some rows, by the file's names.
    """

    format: str
    types: Mapping[str, str]
    renamed: Mapping[str, str] = field(default_factory=dict[str, str])
    left_out: tuple[str, ...] = ()
    rows: Sequence[Mapping[str, Any]] = ()
    csv: Csv = field(default_factory=Csv)
    null_value: str | None = None
    encoding: str = "utf-8"

    @property
    def ddl(self) -> str:
        """The schema as Spark's DDL."""
        return ", ".join(f"{quoted(name)} {type_}" for name, type_ in self.types.items())


def schema_of_types(
    format_: str, types: Mapping[str, str], rows: Sequence[Mapping[str, Any]] = ()
) -> FileSchema:
    """The schema of a file with these columns.

    A name that cannot be a column, like `Unit Price`, gets another one, like `unit_price`. If that
    is not possible, the column is left out.
    """
    columns = dict[str, str]()
    for name in types:
        columns[name] = name
        if name.startswith("_"):
            columns[name] = ""  # `Table.renamed` does not accept such a name
        elif NO_NAME.search(name):
            columns[name] = re.sub(r"\W+", "_", name).strip("_").lower()
    names = dict[str, str]()
    for name in sorted(types, key=lambda name: columns[name] != name):  # valid names come first
        names.setdefault(columns[name].lower(), name)
    kept = [name for name, column in columns.items() if column and names[column.lower()] == name]
    return FileSchema(
        format=format_,
        types={columns[name]: types[name] for name in kept},
        renamed={name: columns[name] for name in kept if columns[name] != name},
        left_out=tuple(name for name in types if name not in kept),
        rows=rows[:_KEPT_ROWS],
    )


def csv_schema(text: str) -> FileSchema:
    """The schema of CSV text, by the values of all its records.

    The first record is a header, unless each of its fields has the type of its column. Columns
    without a header are called `column_1`, `column_2` and so on.

    Raises:
        Unreadable: the first record does not name each column once.
    """
    csv.field_size_limit(MAX_RECORD_BYTES)  # with another delimiter, a wide record is one field
    delimiter = _delimiter(text)
    lines = text.splitlines(keepends=True)
    first, *others = [record for record in csv.reader(lines, delimiter=delimiter) if record]
    records = [record for record in others if len(record) == len(first)]
    names = [name.strip() or f"_c{place}" for place, name in enumerate(first)]
    values = [*zip(*records, strict=True)]
    decimal = "."
    if delimiter != "," and _has_comma_fractions(values):
        decimal = ","
    null_value = _null_value(values, decimal)
    type_of = partial(_type_of_texts, null_value=null_value, decimal=decimal)
    header = _is_header(first, values, type_of)
    if not header:
        records = [first, *records]
        names = [f"column_{place}" for place in range(1, len(first) + 1)]
    is_blank_separated = len(names) == 1 and " " in names[0]
    if is_blank_separated or len({*names}) < len(names) or (others and not records):
        raise Unreadable(
            f"its first record does not name each column once: {first_names(names)}. Use a header "
            "with one name for each field, separated as the fields are, but not by blanks"
        )
    columns = {name: [record[place] for record in records] for place, name in enumerate(names)}
    types = {name: type_of(texts) for name, texts in columns.items()}
    rows = [dict(zip(names, record, strict=True)) for record in records[:_KEPT_ROWS]]
    return replace(
        schema_of_types("csv", types, rows),
        csv=Csv(delimiter=delimiter, decimal=decimal, header=header),
        null_value=null_value,
    )


def json_schema(objects: Sequence[Mapping[str, Any]]) -> FileSchema:
    """The schema of JSON objects, by all their values. A field that is always null is left out."""
    kinds = dict[str, _Kind | None]()
    for each in objects:
        for name, value in each.items():
            kinds[name] = _kind_of_both(kinds.get(name), _kind_of_value(value))
    types = {name: _ddl_of(kind) for name, kind in kinds.items()}
    return schema_of_types("json", {name: type_ for name, type_ in types.items() if type_}, objects)


def json_objects(text: str) -> list[Mapping[str, Any]]:
    """The objects of JSON lines, or of one array. Other lines are skipped."""
    values = list[Any]()
    if text.lstrip().startswith("["):
        values += json.loads(text)
    else:
        for line in text.splitlines():
            with suppress(ValueError):
                values.append(json.loads(line))
    return [cast("Mapping[str, Any]", value) for value in values if isinstance(value, dict)]


def quoted(name: str) -> str:
    """The name as DDL has it: in backticks if it is no plain word."""
    is_plain = re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII)
    return name if is_plain else f"`{name.replace('`', '``')}`"


def _is_header(
    first: Sequence[str], columns: Iterable[Sequence[str]], type_of: Callable[[Sequence[str]], str]
) -> bool:
    """Whether a field of the first record lacks the type of its column, or all are texts."""
    typed = [
        [name, *values]
        for name, values in zip(first, columns, strict=False)
        if name.strip() and type_of(values) != "STRING"
    ]
    return not typed or "STRING" in map(type_of, typed)


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
        present = [value for value in values if value.strip() not in _NULLS]
        if _type_of_texts(present, None, ",").startswith(("DOUBLE", "DECIMAL")):
            return True
    return False


def _type_of_texts(values: Sequence[str], null_value: str | None, decimal: str) -> str:
    found: _Kind | None = None
    texts = {value.strip() for value in values} - {"", null_value}
    if decimal == ",":
        texts = {text.translate(_SWAPPED) for text in texts}
    if any("," in text for text in texts) and all(map(_GROUPED.fullmatch, texts)):
        return f"DECIMAL(38,{max(len(text.partition('.')[2]) for text in texts)})"
    for text in texts:
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
