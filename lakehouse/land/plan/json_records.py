"""Parses lines of JSON into records. A line must be exactly one valid JSON object.

Spark parses such a line into columns without misreading a value, and finds what is out of range.

Spark parses the records into columns. It refuses most values of a wrong type, but silently loads
some of them as other values. A record with one of these values is refused before Spark parses it:

- `DECIMAL`: Spark drops commas, since English groups digits with commas. A number with a huge
  exponent takes hours to parse.
- `TIMESTAMP`: a time of day becomes a time of today, and a text of digits alone becomes a year. A
  number of milliseconds becomes a date in the far future. The letters of a zone stand for several
  zones (`IST`), of which Java chooses one.
- `DATE`: any text before or after the day is dropped.
- `TINYINT`: 128 to 255 become negative.
- `DOUBLE` and `FLOAT`: a number that is too large becomes infinite.

Values of a nested type are checked only for huge exponents, if the type contains a DECIMAL, and for
the letters of a zone, if it contains a TIMESTAMP. If the schema contains a DECIMAL, no field may be
a number with a huge exponent.

Source: Spark's JacksonParser and SparkDateTimeUtils; Jackson's getByteValue; Java's
BigDecimal.setScale

Any other line also becomes a record, with the problem that it has. Blank lines are skipped. A text
that begins with `[` is one array instead. Each of its elements must be an object.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any, cast

from lakehouse.declare.landing import Debezium, Landing
from lakehouse.delta.columns import field_types, type_word
from lakehouse.land.plan import records
from lakehouse.land.plan.records import (
    FORMS,
    GROUPED,
    NOT_JSON,
    NOT_UTF_8,
    PLAIN_FORMS,
    SHOWN_BYTES,
    TOO_DEEP,
    UNFIT,
    ZONE,
    Record,
    Unreadable,
    earlier_names,
    others_in_object,
    with_present_names,
    with_texts,
)

# One by one, because Java compares a character with a range more slowly.
_CONTROLS = "".join(rf"\x{number:02x}" for number in range(32))
_CHARACTERS = rf'[^"\\{_CONTROLS}]*+'
# Half of a surrogate pair is no plain escape.
_ESCAPE = (
    r'\\(?:["\\/bfnrt]|u(?:[0-9abcefABCEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}'
    r"|[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}))"
)
# The plain forms of JSON values, by the first word of the declared type. A value of another type,
# such as a nested one, has no plain form.
_FORMS = {
    "STRING": rf'"{_CHARACTERS}(?:{_ESCAPE}{_CHARACTERS})*+"',
    **PLAIN_FORMS,
    **{
        word: rf'"(?:{form})"'
        for word, form in PLAIN_FORMS.items()
        if word.startswith(("DATE", "TIME"))
    },
    "DECIMAL": rf'{PLAIN_FORMS["DECIMAL"]}|"{PLAIN_FORMS["DECIMAL"]}"',
}
# The pattern tries one name after the other, so it is not worth its time for a wide table.
_MOST_FIELDS = 100


def plain_line_pattern(types: Mapping[str, str]) -> str | None:
    """A regular expression of Python and Java that plain lines match.

    A line must also be UTF-8 to be plain. `types` are the declared fields with their types. `None`
    if they are many, or if no value of them has a plain form.
    """
    line = _plain_line(types)
    # `$` would also match before a line separator.
    return None if line is None else rf"^{line}(?![\s\S])"


def _plain_line(types: Mapping[str, str]) -> str | None:
    if len(types) > _MOST_FIELDS:
        return None
    members = [
        rf'{re.escape(name)}"[ \t]*:[ \t]*(?:{_FORMS[type_word(type_)]}|null)'
        for name, type_ in types.items()
        if type_word(type_) in _FORMS and '"' not in name and "\\" not in name
    ]
    if not members:
        return None
    # After a comma, another member follows.
    end = r'[ \t]*(?:,(?=[ \t]*")|(?=\}))'
    # Members usually come in the declared order. The loop over the others tries one after another.
    in_order = "".join(rf'(?:[ \t]*"{member}{end})?+' for member in members)
    others = rf'(?:[ \t]*"(?:{"|".join(members)}){end})*+'
    return rf"[ \t]*\{{{in_order}{others}\}}[ \t]*"


@cache
def _plain_text(schema: str) -> re.Pattern[str] | None:
    line = _plain_line(dict(field_types(schema)))
    return None if line is None else re.compile(rf"(?:{line}(?:\n|\Z))*+")


def plain_json_lines(text: str, landing: Landing) -> list[str] | None:
    """The lines of a text if all of them are plain: then they need no check, and no copy."""
    pattern = None if landing.changes is not None else _plain_text(landing.schema)
    if not text or pattern is None or not pattern.fullmatch(text):
        return None
    return text.removesuffix("\n").split("\n")


# The first words of nested types.
NESTED = ("STRUCT", "ARRAY", "MAP")
# Seconds of the years 1 to 9999.
FIRST_SECOND = -62_135_596_800
LAST_SECOND = 253_402_300_799
_LARGEST_DOUBLE = 1.7976931348623157e308
LARGEST_FLOAT = 3.4028234663852886e38
# A number whose exponent has four digits or more; as a number in a JSON text without strings; and
# as a string, but no name, in a JSON text.
_HUGE = r"[-+]?[0-9.]+[eE][-+]?[0-9]{4,}"
HUGE_NUMBER = rf"[:,\[]\s*{_HUGE}"
HUGE_TEXT = rf'"\s*{_HUGE}\s*"(?!\s*:)'
_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*+"')
# A time with the letters of a zone, in a JSON text.
_OTHER_ZONE_TEXT = (
    r'"\s*[-+]?[0-9]{4,7}-[0-9]{1,2}-[0-9]{1,2}[T ][0-9:.\s]*'
    rf'(?!{ZONE}\s*")[^0-9:.\s"]'
)
_DECIMAL_WORDS = re.compile(r"\b(?:dec|decimal|numeric)\b", re.IGNORECASE)


def has_misread_value(rows: Sequence[Mapping[str, Any]], text: str, schema: str) -> bool:
    """Whether Spark would load a value of a row as a different value, or parse it for hours.

    `rows` are the row of a line, or the rows of an event of Debezium, and `text` is the JSON text
    that has them.
    """
    may_be_huge = has_decimals(schema) and re.search(HUGE_NUMBER, text)
    if may_be_huge and re.search(HUGE_NUMBER, _STRINGS.sub('""', text)):
        return True
    checks = _checks(schema)
    for row in rows:
        for name, is_exact in checks:
            value = row.get(name)
            if value is not None and not is_exact(value):
                return True
    return False


@cache
def has_decimals(type_: str) -> bool:
    """Whether a type, or a schema, contains a DECIMAL."""
    return _DECIMAL_WORDS.search(type_) is not None


def misread_pattern(type_: str) -> str:
    """A pattern of the JSON texts that a nested type misreads; empty if there are none."""
    patterns = list[str]()
    if has_decimals(type_):
        patterns.append(HUGE_TEXT)
    if "timestamp" in type_.lower():
        patterns.append(_OTHER_ZONE_TEXT)
    return "|".join(patterns)


@cache
def _checks(schema: str) -> Sequence[tuple[str, Callable[[Any], bool]]]:
    """The checked columns, with functions that return whether Spark may load a value unchanged."""
    checks = list[tuple[str, Callable[[Any], bool]]]()
    for name, type_ in field_types(schema):
        kind = type_word(type_)
        checks += [(name, check) for check in _CHECKS_OF.get(kind, ())]
        if kind in NESTED and (pattern := misread_pattern(type_)):
            checks.append((name, _lacks(pattern)))
    return checks


def _has_form(form: str) -> Callable[[Any], bool]:
    return lambda value: not isinstance(value, str) or re.search(form, value) is not None


def _lacks(pattern: str) -> Callable[[Any], bool]:
    return lambda value: re.search(pattern, json.dumps(value)) is None


def _within(least: float, greatest: float) -> Callable[[Any], bool]:
    return lambda value: not isinstance(value, int | float) or least <= value <= greatest


_CHECKS_OF: dict[str, Sequence[Callable[[Any], bool]]] = {
    "DECIMAL": (_has_form(rf"^[^,]*$|{GROUPED}"), _lacks(HUGE_TEXT)),
    **dict.fromkeys(
        ("TIMESTAMP", "TIMESTAMP_NTZ"),
        (_has_form(FORMS["timestamp"]), _within(FIRST_SECOND, LAST_SECOND)),
    ),
    "DATE": (_has_form(FORMS["date"]),),
    "TINYINT": (_within(-128, 127),),
    "DOUBLE": (_within(-_LARGEST_DOUBLE, _LARGEST_DOUBLE),),
    "FLOAT": (_within(-LARGEST_FLOAT, LARGEST_FLOAT),),
}


_ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


# NaN and the infinities are not JSON. `int` refuses their names.
_decoder = json.JSONDecoder(parse_constant=int)
_decode = _decoder.decode
# The beginning of an array's element, or the array's end. JSON knows no other blanks.
_NEXT_ELEMENT = re.compile(r"[^ \t\r\n,]")


def json_records(chunks: Iterator[bytes], landing: Landing) -> Iterator[Record]:
    """The records of a text with JSON lines, or with one array. Blank lines are skipped.

    Raises:
        Unreadable: the text begins with `[`, and is not an array. Raised before the first record.
    """
    first = b""
    for chunk in chunks:
        first += chunk
        if first.strip():
            break
    chunks = chain([first], chunks)
    if first.lstrip().startswith(b"["):
        return _array_records(b"".join(chunks), landing)
    return _line_records(chunks, landing)


def _array_records(content: bytes, landing: Landing) -> Iterator[Record]:
    """The elements of an array, each as if it were a line, with the number of its first line."""
    spans = list[tuple[int, int]]()
    try:
        text = content.decode()
        _decode(text)
        end = text.index("[") + 1
        while (first := _NEXT_ELEMENT.search(text, end)) and first[0] != "]":
            _, end = _decoder.raw_decode(text, first.start())
            spans.append((first.start(), end))
    except (ValueError, RecursionError) as error:
        raise Unreadable(
            f"it begins with [ and is no JSON array of objects ({error}); land it again as one"
            " array, or with one object per line"
        ) from error
    line = 1
    counted = 0
    for start, end in spans:
        line += text.count("\n", counted, start)
        counted = start
        # Strings in JSON have no line breaks, so these are blanks.
        element = text[start:end].replace("\r", " ").replace("\n", " ")
        yield json_record(line, element.encode(), landing)


def _line_records(chunks: Iterator[bytes], landing: Landing) -> Iterator[Record]:
    number = 1
    rest = b""
    is_skipping = False
    for chunk in chunks:
        lines = (rest + chunk).splitlines(keepends=True)
        # The last line may continue in the next chunk. If it ends in a carriage return, a line feed
        # may follow there.
        rest = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
        for line in lines:
            if not is_skipping and line.strip():
                yield json_record(number, line.rstrip(b"\r\n"), landing)
            number += 1
            is_skipping = False
        if len(rest) > records.MAX_RECORD_BYTES:
            if not is_skipping:
                yield json_record(number, rest, landing)
            # The bytes up to the next line break belong to the same record. The last byte is kept,
            # because it may be the first half of a line break.
            rest = rest[-1:]
            is_skipping = True
    if not is_skipping and rest.strip():
        yield json_record(number, rest.rstrip(b"\r\n"), landing)


def json_record(number: int, line: bytes, landing: Landing) -> Record:
    """The record on one line, perhaps with a problem."""
    if len(line) > records.MAX_RECORD_BYTES:
        problem = f"the line has more than {records.MAX_RECORD_BYTES} bytes, the limit"
        return Record(number, line[:SHOWN_BYTES], problem)
    try:
        return _parsed(number, line, landing)
    except RecursionError:
        return Record(number, line, TOO_DEEP)
    except UnicodeDecodeError:
        return Record(number, line, NOT_UTF_8)
    except ValueError:
        return Record(number, line, NOT_JSON)


def _parsed(number: int, line: bytes, landing: Landing) -> Record:
    text = line.decode()
    value: object = _decode(text)
    # Half of a surrogate pair cannot be encoded. Spark would replace it with a question mark.
    has_escapes = _ESCAPED_SURROGATE.search(line) is not None
    if has_escapes and _SURROGATE.search(json.dumps(value, ensure_ascii=False)):
        return Record(number, line, "a \\u escape is one half of a character")
    fields = landing.field_types
    if isinstance(landing.changes, Debezium):
        # Only change data needs this import.
        from lakehouse.cdc.plan.decode_debezium import canonical_event

        event = canonical_event(value, text, landing, fields)
        if event is None:
            return Record(number, line, NOT_JSON)
        problem = event.problem
        if problem is None and has_misread_value(event.rows, event.text, landing.schema):
            problem = UNFIT
        return Record(number, line, problem, event.undeclared, event.text)
    if not isinstance(value, dict):
        return Record(number, line, NOT_JSON)
    # If a field has its earlier name, `content` stays as it was sent, for the quarantine, and Spark
    # parses a copy with the present names (`event`). Otherwise, Spark parses `content`.
    sent = cast("dict[str, Any]", value)
    row, present_text, _, problem = with_present_names(sent, text, earlier_names(landing))
    if problem is None and has_misread_value([row], present_text, landing.schema):
        problem = UNFIT
    others = others_in_object(row, present_text, fields)
    staged = with_texts(row, present_text, fields)
    if row is not sent:
        return Record(number, line, problem, others, event=staged)
    return Record(number, line if staged is text else staged.encode(), problem, others)
