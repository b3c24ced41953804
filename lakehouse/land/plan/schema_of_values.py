"""Suggests the declaration of a text file: its columns and their types, by its values."""

import csv
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import Any, Literal, cast

from lakehouse.base.frozen import frozen
from lakehouse.base.text import first_names
from lakehouse.declare.landing import Csv
from lakehouse.land.plan.records import MAX_RECORD_BYTES, NO_NAME, Unreadable

# Digits in groups, which only a DECIMAL accepts (`land.parse_lines`); or a plain number.
_GROUPED = re.compile(r"[-+]?(?:[0-9]{1,3}(?:,[0-9]{3})+(?=\.)|[0-9]+)(?:\.[0-9]{1,18})?")
_WHOLE = r"[-+]?(?:0|[1-9][0-9]{0,18})"
_BIGINT = range(-(2**63), 2**63)
_DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK = r"[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?(?:Z| ?UTC| ?[-+][0-9]{2}:?[0-9]{2})?"
# The forms of texts. Values have the first type whose form all of them have.
_TIMES = {"DATE": re.compile(_DAY), "TIMESTAMP": re.compile(f"{_DAY}(?:{_CLOCK})?")}
_TYPES = {
    "BIGINT": re.compile(_WHOLE),
    "DOUBLE": re.compile(rf"(?:{_WHOLE}(?:\.[0-9]+)?|[-+]?\.[0-9]+)(?:[eE][-+]?[0-9]+)?"),
    "BOOLEAN": re.compile(r"(?i:true|false)"),
    **_TIMES,
}
_DecimalPoint = Literal[".", ","]
_SWAPPED = str.maketrans(",.", ".,")
# Words that tools write for a missing value.
_NULLS = ("NA", "NULL", "null", "\\N", "NaN", "nan", "None", "N/A", "n/a", "-", "?")
_DELIMITERS = ",;\t|"

# Rows that are kept to look at: enough to see whether a column is a key.
_KEPT_ROWS = 1_000
# NaN and the infinities are not JSON.
_decoder = json.JSONDecoder(parse_constant=lambda _: None)


@frozen
class FileSchema:
    """What a file suggests to declare: its columns with SQL types, and its format.

    `renamed` maps names that cannot be columns to the names of their columns. The values of the
    fields in `left_out` follow `Landing.new_columns`. `rows` are some rows, by the file's names.
    """

    format: str
    types: Mapping[str, str]
    renamed: Mapping[str, str] = {}
    left_out: tuple[str, ...] = ()
    rows: Sequence[Mapping[str, Any]] = ()
    csv: Csv = Csv()
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
    taken = set[str]()
    for name in sorted(types, key=lambda name: bool(NO_NAME.search(name))):  # valid names first
        column = name
        if NO_NAME.search(name):
            column = re.sub(r"\W+", "_", name).strip("_").lower()
        # `Table.renamed` does not accept a name that starts with `_`.
        if column and not name.startswith("_") and column.lower() not in taken:
            taken.add(column.lower())
            columns[name] = column
    return FileSchema(
        format=format_,
        types={columns[name]: type_ for name, type_ in types.items() if name in columns},
        renamed={name: column for name, column in columns.items() if name != column},
        left_out=tuple(name for name in types if name not in columns),
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
    first, *others = [
        [field.strip() for field in record]
        for record in csv.reader(lines, delimiter=delimiter)
        if record
    ]
    records = [record for record in others if len(record) == len(first)]
    with_first = [*zip(first, *records, strict=True)]
    columns = [column[1:] for column in with_first]
    decimals: Sequence[_DecimalPoint] = (".",) if delimiter == "," else (".", ",")
    decimal, null_value = _decimal_and_null(columns, decimals)
    types = _types(columns, decimal, [null_value])
    types_with_first = _types(with_first, decimal, [null_value])
    typed_fields = [
        type_with_first != "STRING"
        for name, type_, type_with_first in zip(first, types, types_with_first, strict=True)
        if name and type_ != "STRING"
    ]
    header = not typed_fields or not all(typed_fields)
    names = [name or f"_c{place}" for place, name in enumerate(first)]
    if not header:
        records = [first, *records]
        types = types_with_first
        names = [f"column_{place}" for place in range(1, len(first) + 1)]
    is_blank_separated = len(names) == 1 and " " in names[0]
    if is_blank_separated or len({*names}) < len(names) or (others and not records):
        raise Unreadable(
            f"its first record does not name each column once: {first_names(names)}. Use a header "
            "with one name for each field, separated as the fields are, but not by blanks"
        )
    rows = [dict(zip(names, record, strict=True)) for record in records[:_KEPT_ROWS]]
    return replace(
        schema_of_types("csv", dict(zip(names, types, strict=True)), rows),
        csv=Csv(delimiter=delimiter, decimal=decimal, header=header),
        null_value=null_value,
    )


def json_schema(objects: Sequence[Mapping[str, Any]]) -> FileSchema:
    """The schema of JSON objects, by all their values. A field that is always null is left out."""
    types = {name: type_ for name, type_ in _member_types(objects).items() if type_}
    return schema_of_types("json", types, objects)


def _member_types(objects: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The SQL types of the members by name; empty where the type is unknown."""
    members = dict[str, list[Any]]()
    for each in objects:
        for name, value in each.items():
            members.setdefault(name, []).append(value)
    return {name: _type_of_values(values) for name, values in members.items()}


def _type_of_values(values: Iterable[Any]) -> str:
    """The SQL type of JSON values; empty if it is unknown, as of nulls and of empty arrays."""
    present = [value for value in values if value is not None]
    kinds: set[type[Any]] = {type(value) for value in present}
    if kinds == {dict}:
        types = _member_types(present)
        if len({name.lower() for name in types}) < len(types):
            return "STRING"
        members = [f"{quoted(name)}: {type_}" for name, type_ in types.items() if type_]
        return f"STRUCT<{', '.join(members)}>" if members else ""
    if kinds == {list}:
        element = _type_of_values(chain.from_iterable(present))
        return f"ARRAY<{element}>" if element else ""
    if kinds == {str}:
        return _type_of_texts(present, _TIMES)
    # In JSON, only numbers and booleans have a form among the types.
    return _type_of_texts([json.dumps(value) for value in present], _TYPES) if present else ""


def json_objects(text: str) -> list[Mapping[str, Any]]:
    """The objects of JSON lines, or of one array. Other lines are skipped."""
    values = list[Any]()
    if text.lstrip().startswith("["):
        values += _decoder.decode(text)
    else:
        for line in text.splitlines():
            with suppress(ValueError):
                values.append(_decoder.decode(line))
    return [cast("Mapping[str, Any]", value) for value in values if isinstance(value, dict)]


def quoted(name: str) -> str:
    """The name as DDL has it: in backticks if it is no plain word."""
    is_plain = re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII)
    return name if is_plain else f"`{name.replace('`', '``')}`"


def _delimiter(text: str) -> str:
    """The delimiter with which most of the first records have the same number of fields."""
    lines = text.splitlines(keepends=True)[:200]

    def score(delimiter: str) -> tuple[int, int]:
        counts = Counter(len(record) for record in csv.reader(lines, delimiter=delimiter) if record)
        fields, records = counts.most_common(1)[0] if counts else (1, 0)
        return (records if fields > 1 else 0, fields)

    return max(_DELIMITERS, key=score)


def _decimal_and_null(
    columns: Sequence[Sequence[str]], decimals: Sequence[_DecimalPoint]
) -> tuple[_DecimalPoint, str | None]:
    """The decimal point that leaves the fewest columns as texts, and the word for missing values.

    The word is the most frequent one in columns whose other values are no plain texts.
    """
    types = {decimal: _types(columns, decimal, _NULLS) for decimal in decimals}
    decimal = min(decimals, key=lambda each: types[each].count("STRING"))
    words = Counter(
        value
        for column, type_ in zip(columns, types[decimal], strict=True)
        for value in column
        if type_ != "STRING" and value in _NULLS
    )
    return decimal, max(words, key=lambda each: words[each], default=None)


def _types(
    columns: Iterable[Iterable[str]], decimal: str, nulls: Iterable[str | None]
) -> list[str]:
    """The types of columns with these texts. Empty texts and `nulls` do not count."""
    types = list[str]()
    for column in columns:
        texts = {*column}.difference(nulls, [""])
        if decimal == ",":
            texts = {text.translate(_SWAPPED) for text in texts}
        if any("," in text for text in texts) and all(map(_GROUPED.fullmatch, texts)):
            types.append(f"DECIMAL(38,{max(len(text.partition('.')[2]) for text in texts)})")
        else:
            types.append(_type_of_texts(texts, _TYPES) if texts else "STRING")
    return types


def _type_of_texts(texts: Iterable[str], types: Mapping[str, re.Pattern[str]]) -> str:
    fitting = (name for name, form in types.items() if all(map(form.fullmatch, texts)))
    type_ = next(fitting, "STRING")
    is_too_large = type_ == "BIGINT" and any(int(text) not in _BIGINT for text in texts)
    return "STRING" if is_too_large else type_
