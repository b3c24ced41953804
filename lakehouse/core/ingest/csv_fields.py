"""One record of CSV, and its fields."""

import re
from collections.abc import Sequence
from functools import cache

from lakehouse.core.declaration.landing import Landing


@cache
def csv_record(delimiter: str, quote: str) -> re.Pattern[bytes]:
    """What one record of CSV and its end look like."""
    sign, field = re.escape(delimiter).encode(), _field_pattern(delimiter, quote)
    return re.compile(rb"(%b(?:%b%b)*+)(\r\n|\n|\r|\Z)" % (field, sign, field))


def csv_names(header: bytes, landing: Landing) -> list[str]:
    """The names in a header, without quotes and blanks; of a record that is none, its fields."""
    mark = landing.quote
    fields = csv_fields(header, landing.delimiter, mark)
    return [field.decode("utf-8", "replace").strip(f" \t{mark}").replace(mark * 2, mark) for field in fields]


def csv_fields(record: bytes, delimiter: str, quote: str) -> list[bytes]:
    """The fields of a whole record, each as it stands there."""
    pattern, sign = _field(delimiter, quote), delimiter.encode()
    found, place = list[bytes](), 0
    while (match := pattern.match(record, place)) is not None:
        found.append(match[0])
        place = match.end() + len(sign)
        if match.end() == len(record):
            break
    return found


def csv_value(field: bytes, landing: Landing) -> str | None:
    """The text of a field, `None` where it is a missing value."""
    text, mark = field.decode("utf-8", "backslashreplace"), landing.quote
    if text.startswith(mark):  # behind a blank it is a sign like any other, as the grammar of a field has it
        text = text.rstrip(" \t")[1:-1].replace(mark * 2, mark)
        return None if not text and landing.null_value is None else text
    return None if text in ("", landing.null_value) else text


@cache
def _field(delimiter: str, quote: str) -> re.Pattern[bytes]:
    return re.compile(_field_pattern(delimiter, quote))


def _field_pattern(delimiter: str, quote: str) -> bytes:
    """What one field looks like.

    Source: RFC 4180, section 2; a field without quotes may hold some behind its first character, and blanks may follow a closing quote.
    """
    sign, mark, blanks = re.escape(delimiter).encode(), re.escape(quote).encode(), " \t".replace(delimiter, "").encode()
    quoted = rb"%b(?:[^%b]++|%b%b)*+%b[%b]*+" % (mark, mark, mark, mark, mark, blanks)
    return rb"(?:%b|[^%b%b\r\n][^%b\r\n]*+|)" % (quoted, mark, sign, sign)


def is_header(names: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether a file's first record names columns, perhaps in another order or case, and is no row."""
    found, columns = ([name.lower() for name in each] for each in (names, wanted))
    return found[:1] == columns[:1] or {*columns[1:]} <= {*found}
