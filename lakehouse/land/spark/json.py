"""Judges lines of large JSON files in Spark.

A plain line (`land.plan.json_records`) has no problem that Spark would not find when it parses it
into columns. Any other line is parsed into its top-level members, too. They show whether the line
is one object, which fields are undeclared, and which values Spark would misread when it parses the
line into columns (`land.plan.json_records`).

A fraction, object or array in a STRING field, and an undeclared field, are stored as Spark spells a
variant: without blanks, and without zeros at the end of a fraction. A line is refused if a variant
would round such a number.

In a line with an earlier name of a field, all values are parsed from variants. A fraction like
`1.0` is then a whole number, and fits an INT.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from lakehouse.declare.landing import Landing
from lakehouse.delta.columns import field_types, struct_types, type_word
from lakehouse.land.parse_lines import (
    EVENT,
    FORMS,
    GROUPED,
    RAW,
    SPELLED,
    UNDECLARED,
    JudgedLines,
    is_plain_line,
    loses_digits,
    without_strings,
)
from lakehouse.land.plan.json_records import (
    FIRST_SECOND,
    HUGE_NUMBER,
    HUGE_TEXT,
    LARGEST_FLOAT,
    LAST_SECOND,
    NESTED,
    has_decimals,
    misread_pattern,
    plain_line_pattern,
)
from lakehouse.land.plan.records import NOT_JSON, TWO_NAMES, UNFIT, earlier_names
from lakehouse.spark import functions as F  # noqa: N812
from lakehouse.spark.frames import evaluated_once, struct_once
from lakehouse.spark.statements import quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_IS_PLAIN = "_lakehouse_is_plain"
_PARTS = "_lakehouse_parts"
_MEMBERS = "_lakehouse_members"
_PRESENT = "_lakehouse_present"
_TEXTS = "_lakehouse_texts"
_OTHERS = "_lakehouse_others"
_STRICT = {
    "mode": "PERMISSIVE",
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
_MAP = "map<string,variant>"
# A JSON text that may have a double: Spark spells them with a point, or as a text.
_HAS_FRACTION = r'[0-9]\.[0-9]|"-?Infinity"'
_OBJECT_OR_ARRAY = "OBJECT OR ARRAY"
# Spark refuses each value of another type.
_UNCHECKED = ("BOOLEAN", "SMALLINT", "SHORT", "INT", "INTEGER", "BIGINT", "LONG")


class _Field(NamedTuple):
    """A declared field: its value, null if it is missing, and the value as a text."""

    value: "Column"
    text: "Column"

    @property
    def is_string(self) -> "Column":
        """Whether the value is a JSON string that does not begin like an object or array."""
        return _kind_of(self.value, self.text) == "STRING"


def judged_lines(lines: "DataFrame", landing: Landing) -> JudgedLines:
    """Parses each line (`value`) into its members, and finds its problems."""
    types = dict(field_types(landing.schema))
    lines = _with_members(lines, types)
    members = F.col(_MEMBERS)
    problems = [(members.isNull(), F.lit(NOT_JSON))]
    event = F.lit(None).cast("string")
    present_names = earlier_names(landing)
    if present_names:
        problems += _two_names(present_names)
        lines = lines.withColumn(_PRESENT, evaluated_once(_renamed(present_names)))
        members = F.col(_PRESENT)
        event = F.when(_has_earlier_name(present_names), F.to_json(members))
    lines, fields = _with_fields(lines, members, types)
    problems += _misread(types, fields)
    texts = [name for name, type_ in types.items() if type_word(type_) == "STRING"]
    spelled = [_spelled(fields[name]).alias(name) for name in texts]
    others = _others(members, types)
    lines = lines.withColumn(_OTHERS, evaluated_once(others))
    problems.append((_is_rounded(members, texts, event), F.lit(UNFIT)))
    columns = [
        F.make_valid_utf8("value").alias(RAW),
        F.to_json(_OTHERS).alias(UNDECLARED),
        event.alias(EVENT),
        F.struct(F.lit(0).alias("_"), *spelled).alias(SPELLED),
        F.col(_OTHERS),
    ]
    is_plain = F.col(_IS_PLAIN)
    return JudgedLines(lines, [(~is_plain & is_bad, why) for is_bad, why in problems], columns)


def names_of_others(lines: "DataFrame", most: int) -> list[str]:
    """The names of the undeclared fields of judged lines, at most `most` of them."""
    names = lines.select(F.explode(F.map_keys(_OTHERS)).alias("name")).distinct()
    return [row[0] for row in names.orderBy("name").limit(most).collect()]


def _with_members(lines: "DataFrame", types: Mapping[str, str]) -> "DataFrame":
    """Adds whether a line is plain, else its members as a map; null if it is not one object.

    The line is parsed as the first of two elements of an array. The second one has a random name,
    so no text after an object can stand for it.
    """
    is_plain = is_plain_line(plain_line_pattern(types))
    lines = lines.withColumn(_IS_PLAIN, evaluated_once(is_plain))
    is_valid = F.is_valid_utf8("value")
    mark = uuid4().hex
    array = F.concat(F.lit("["), F.col("value"), F.lit(f',{{"{mark}":0}}]'))
    parts = F.from_json(array, f"array<{_MAP}>", _STRICT)
    lines = lines.withColumn(_PARTS, evaluated_once(F.when(~F.col(_IS_PLAIN) & is_valid, parts)))
    has_mark = F.map_contains_key(F.try_element_at(_PARTS, F.lit(2)), mark)
    given = F.try_element_at(_PARTS, F.lit(1))
    is_object = (F.size(_PARTS) == 2) & has_mark & ~_has_half_character(given)
    # Of members with the same name, this keeps the last.
    members = F.map_from_entries(F.map_entries(given))
    return lines.withColumn(_MEMBERS, evaluated_once(F.when(is_object, members)))


def _has_half_character(members: "Column") -> "Column":
    """Whether a name may have half a surrogate pair, which Spark replaces with a question mark.

    A value with one is not parsed.
    """
    has_escapes = F.rlike("value", F.lit(r"\\u[dD][89a-fA-F]"))
    return has_escapes & F.exists(F.map_keys(members), lambda name: F.contains(name, F.lit("?")))


def _given(name: str) -> "Column":
    """A member as it was sent; null if it is missing or null."""
    value = F.try_element_at(_MEMBERS, F.lit(name))
    return F.when(~F.is_variant_null(value), value)


def _two_names(present_names: Mapping[str, str]) -> "list[tuple[Column, Column]]":
    """Whether two names of a column have different values, with the reason."""
    problems = list[tuple["Column", "Column"]]()
    names = defaultdict[str, list[str]](list)
    for old, new in present_names.items():
        for name in (new, *names[new]):
            is_other = F.to_json(_given(old)) != F.to_json(_given(name))
            problems.append((is_other, F.lit(f"{TWO_NAMES}{old} and {name}")))
        names[new].append(old)
    return problems


def _has_earlier_name(present_names: Mapping[str, str]) -> "Column":
    names = F.array(*map(F.lit, present_names))
    return F.arrays_overlap(F.map_keys(_MEMBERS), names)


def _renamed(present_names: Mapping[str, str]) -> "Column":
    """The members under their present names."""
    values = dict[str, "Column"]()
    for old, new in present_names.items():
        values[new] = F.coalesce(values.get(new, _given(new)), _given(old))
    names = [*present_names, *values]
    kept = F.map_filter(_MEMBERS, lambda name, _: ~name.isin(*names))
    given = F.map_from_arrays(F.array(*map(F.lit, values)), F.array(*values.values()))
    renamed = F.map_concat(kept, given)
    return F.when(_has_earlier_name(present_names), renamed).otherwise(F.col(_MEMBERS))


def _with_fields(
    lines: "DataFrame", members: "Column", types: Mapping[str, str]
) -> "tuple[DataFrame, dict[str, _Field]]":
    """Adds the texts of the checked members, each evaluated once, because checks repeat them."""
    fields = dict[str, _Field]()
    texts = list["Column"]()
    for name, type_ in types.items():
        if type_word(type_) not in _UNCHECKED:
            value = F.try_element_at(members, F.lit(name))
            texts.append(_text_of(value).alias(name))
            fields[name] = _Field(value, F.col(f"{_TEXTS}.{quote(name)}"))
    return lines.withColumn(_TEXTS, struct_once(texts)), fields


def _text_of(value: "Column") -> "Column":
    """The text of a string, or the JSON text of another value; null for null."""
    return F.try_variant_get(value, "$", "string")


def _kind_of(value: "Column", text: "Column") -> "Column":
    """Spark's type of a variant, or `_OBJECT_OR_ARRAY` if its text begins like one.

    The type of a deep object would overflow the stack of an executor, and stop Spark.
    """
    is_nested = text.rlike(r"^[{\[]")
    return F.when(is_nested, _OBJECT_OR_ARRAY).otherwise(F.schema_of_variant(value))


def _spelled(field: _Field) -> "Column":
    """The text of a value of a STRING field that is a fraction, object or array; otherwise null."""
    may_be_other = field.text.rlike(r"^[-0-9{\[IN]")
    is_other = may_be_other & ~_kind_of(field.value, field.text).isin("STRING", "BIGINT")
    return F.when(is_other, field.text)


def _may_have_double(value: "Column") -> "Column":
    text = _text_of(value)
    kind = _kind_of(value, text)
    return (kind == "DOUBLE") | ((kind == _OBJECT_OR_ARRAY) & text.rlike(_HAS_FRACTION))


def _is_rounded(members: "Column", texts: Sequence[str], event: "Column") -> "Column":
    """Whether a variant may have rounded a number that is stored as the variant spells it.

    These are the numbers in the named STRING fields and in undeclared fields, and all numbers of an
    `event`.
    """
    is_event = event.isNotNull()
    spelled = F.map_filter(members, lambda name, _: is_event | name.isin(*texts))
    others = F.coalesce(F.map_values(_OTHERS), F.array())
    stored = F.concat(F.map_values(spelled), others)
    return F.exists(stored, _may_have_double) & loses_digits(F.col("value"), members)


def _others(members: "Column", types: Mapping[str, str]) -> "Column":
    """The undeclared members that are not null, as a map; null if there are none.

    Those of a declared STRUCT have a name like `a.b`.
    """
    may_be_others = F.exists(F.map_keys(members), lambda name: ~name.isin(*types))
    undeclared = F.map_filter(
        members, lambda name, value: ~name.isin(*types) & ~F.is_variant_null(value)
    )
    parts = [F.when(may_be_others, undeclared)]
    for name, type_ in types.items():
        inner_types = struct_types(type_)
        if inner_types:
            struct = F.try_variant_get(F.try_element_at(members, F.lit(name)), "$", _MAP)
            parts.append(_with_path(_others(struct, inner_types), f"{name}."))
    entries = [F.coalesce(F.map_entries(part), F.array()) for part in parts]
    joined = F.map_from_entries(F.concat(*entries)) if len(parts) > 1 else parts[0]
    return F.when(F.size(joined) > 0, joined)


def _with_path(members: "Column", path: str) -> "Column":
    """The members with names that begin with a path."""
    return F.transform_keys(members, lambda name, _value: F.concat(F.lit(path), name))


def _misread(
    types: Mapping[str, str], fields: Mapping[str, _Field]
) -> "list[tuple[Column, Column]]":
    """Whether Spark would load a value as a different value, or parse it for hours."""
    problems = list["Column"]()
    if any(map(has_decimals, types.values())):
        is_huge = F.rlike("value", F.lit(HUGE_NUMBER))
        problems.append(is_huge & without_strings(F.col("value")).rlike(HUGE_NUMBER))
    for name, field in fields.items():
        type_ = types[name]
        kind = type_word(type_)
        pattern = misread_pattern(type_) if kind in NESTED else ""
        if pattern:
            problems.append(field.text.rlike(pattern))
        elif kind in _IS_MISREAD:
            problems.append(_IS_MISREAD[kind](field))
    return [(problem, F.lit(UNFIT)) for problem in problems]


def _is_misread_decimal(field: _Field) -> "Column":
    is_grouped = F.contains(field.text, F.lit(",")) & ~field.text.rlike(GROUPED)
    is_huge = F.concat(F.lit('"'), field.text, F.lit('"')).rlike(HUGE_TEXT)
    return is_grouped | (F.contains(F.lower(field.text), F.lit("e")) & is_huge)


def _is_misread_time(field: _Field) -> "Column":
    # A number of seconds, unless it is a text.
    is_second = field.text.try_cast("bigint").between(FIRST_SECOND, LAST_SECOND) & ~field.is_string
    is_number = F.coalesce(is_second, F.lit(False))
    return ~field.text.rlike(FORMS["timestamp"]) & ~(field.text.rlike("^-?[0-9]+$") & is_number)


def _is_misread_date(field: _Field) -> "Column":
    return ~field.text.rlike(FORMS["date"])


def _is_misread_byte(field: _Field) -> "Column":
    return ~field.text.try_cast("bigint").between(-128, 127)


def _is_misread_double(field: _Field) -> "Column":
    return field.text.isin("Infinity", "-Infinity") & ~field.is_string


def _is_misread_float(field: _Field) -> "Column":
    return (F.abs(field.text.try_cast("double")) > LARGEST_FLOAT) & ~field.is_string


_IS_MISREAD: Mapping[str, "Callable[[_Field], Column]"] = {
    **dict.fromkeys(("DECIMAL", "DEC", "NUMERIC"), _is_misread_decimal),
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ"), _is_misread_time),
    "DATE": _is_misread_date,
    **dict.fromkeys(("TINYINT", "BYTE"), _is_misread_byte),
    "DOUBLE": _is_misread_double,
    **dict.fromkeys(("FLOAT", "REAL"), _is_misread_float),
}
