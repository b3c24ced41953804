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
from lakehouse.delta.columns import struct_types, type_word
from lakehouse.land.parse_lines import (
    EVENT,
    FORMS,
    GROUPED,
    RAW,
    REASON,
    SPELLED,
    UNDECLARED,
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
_UNCHECKED = ("BOOLEAN", "SMALLINT", "INT", "BIGINT")


class _Field(NamedTuple):
    """A declared field: its value, null if it is missing, and the value as a text."""

    value: "Column"
    text: "Column"

    @property
    def is_string(self) -> "Column":
        """Whether the value is a JSON string that does not begin like an object or array."""
        return _kind_of(self.value, self.text) == "STRING"


def judged_lines(
    lines: "DataFrame", landing: Landing, origin: "Sequence[Column]", reason: "Column"
) -> "DataFrame":
    """The judged lines (`value`) with columns for their `origin`, to be parsed into columns.

    `reason` is a chain of `when`, which is extended by the problems of a line.
    """
    types = landing.field_types
    lines = _with_members(lines, types)
    members = F.col(_MEMBERS)
    why = F.when(members.isNull(), NOT_JSON)
    event = F.lit(None).cast("string")
    present_names = earlier_names(landing)
    if present_names:
        why = _why_two_names(why, present_names)
        lines = lines.withColumn(_PRESENT, evaluated_once(_renamed(present_names)))
        members = F.col(_PRESENT)
        event = F.when(_has_earlier_name(present_names), F.to_json(members))
    fields = dict[str, _Field]()
    field_texts = list["Column"]()
    for name, type_ in types.items():
        if type_word(type_) not in _UNCHECKED:
            value = F.try_element_at(members, F.lit(name))
            field_texts.append(_text_of(value).alias(name))
            fields[name] = _Field(value, F.col(f"{_TEXTS}.{quote(name)}"))
    # Evaluated once, because checks repeat them.
    lines = lines.withColumn(_TEXTS, struct_once(field_texts))
    why = _why_misread(why, types, fields)
    texts = [name for name, type_ in types.items() if type_word(type_) == "STRING"]
    spelled = [_spelled(fields[name]).alias(name) for name in texts]
    lines = lines.withColumn(_OTHERS, evaluated_once(_others(members, types)))
    why = why.when(_is_rounded(members, texts, event), UNFIT)
    return lines.select(
        *origin,
        F.make_valid_utf8("value").alias(RAW),
        F.to_json(_OTHERS).alias(UNDECLARED),
        event.alias(EVENT),
        F.struct(F.lit(0).alias("_"), *spelled).alias(SPELLED),
        _OTHERS,
        evaluated_once(reason.when(~F.col(_IS_PLAIN), why)).alias(REASON),
    )


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
    # Spark replaces half a surrogate pair in a name with a question mark. It does not parse a value
    # with one.
    has_escapes = F.col("value").rlike(r"\\u[dD][89a-fA-F]")
    has_mark_in_name = F.exists(F.map_keys(given), lambda name: name.contains("?"))
    has_half_character = has_escapes & has_mark_in_name
    is_object = (F.size(_PARTS) == 2) & has_mark & ~has_half_character
    # Of members with the same name, this keeps the last.
    members = F.map_from_entries(F.map_entries(given))
    return lines.withColumn(_MEMBERS, evaluated_once(F.when(is_object, members)))


def _given(name: str) -> "Column":
    """A member as it was sent; null if it is missing or null."""
    value = F.try_element_at(_MEMBERS, F.lit(name))
    return F.when(~F.is_variant_null(value), value)


def _why_two_names(why: "Column", present_names: Mapping[str, str]) -> "Column":
    """Adds to the cases of `why`: two names of a column have different values."""
    names = defaultdict[str, list[str]](list)
    for old, new in present_names.items():
        for name in (new, *names[new]):
            is_other = F.to_json(_given(old)) != F.to_json(_given(name))
            why = why.when(is_other, f"{TWO_NAMES}{old} and {name}")
        names[new].append(old)
    return why


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


def _why_misread(why: "Column", types: Mapping[str, str], fields: Mapping[str, _Field]) -> "Column":
    """Adds to the cases of `why`: Spark would load another value, or parse it for hours."""
    if any(map(has_decimals, types.values())):
        line = F.col("value")
        is_huge = line.rlike(HUGE_NUMBER) & without_strings(line).rlike(HUGE_NUMBER)
        why = why.when(is_huge, UNFIT)
    for name, field in fields.items():
        type_ = types[name]
        kind = type_word(type_)
        pattern = misread_pattern(type_) if kind in NESTED else ""
        if pattern:
            why = why.when(field.text.rlike(pattern), UNFIT)
        elif kind in _IS_MISREAD:
            why = why.when(_IS_MISREAD[kind](field), UNFIT)
    return why


def _is_misread_decimal(field: _Field) -> "Column":
    is_grouped = field.text.contains(",") & ~field.text.rlike(GROUPED)
    is_huge = F.concat(F.lit('"'), field.text, F.lit('"')).rlike(HUGE_TEXT)
    return is_grouped | (F.lower(field.text).contains("e") & is_huge)


def _is_misread_time(field: _Field) -> "Column":
    # A number of seconds, unless it is a text.
    is_second = field.text.try_cast("bigint").between(FIRST_SECOND, LAST_SECOND) & ~field.is_string
    is_number = F.coalesce(is_second, F.lit(False))
    return ~field.text.rlike(FORMS["timestamp"]) & ~(field.text.rlike("^-?[0-9]+$") & is_number)


_IS_MISREAD: Mapping[str, "Callable[[_Field], Column]"] = {
    "DECIMAL": _is_misread_decimal,
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_NTZ"), _is_misread_time),
    "DATE": lambda field: ~field.text.rlike(FORMS["date"]),
    "TINYINT": lambda field: ~field.text.try_cast("bigint").between(-128, 127),
    "DOUBLE": lambda field: field.text.isin("Infinity", "-Infinity") & ~field.is_string,
    "FLOAT": lambda field: (
        (F.abs(field.text.try_cast("double")) > LARGEST_FLOAT) & ~field.is_string
    ),
}
