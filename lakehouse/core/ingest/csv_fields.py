"""One record of CSV, and its fields."""

import re
from functools import cache

from lakehouse.core.declaration.landing import Landing

LINE_BREAK = re.compile(rb"\r\n|\n|\r")


@cache
def csv_record(delimiter: str, quote: str) -> re.Pattern[bytes]:
    """The pattern of one record of CSV and its end."""
    sign, field = re.escape(delimiter).encode(), _field_pattern(delimiter, quote)
    return re.compile(rb"(%b(?:%b%b)*+)(\r\n|\n|\r|\Z)" % (field, sign, field))


def csv_names(header: bytes, landing: Landing) -> list[str]:
    """The names in a header, without quotes and blanks; of a record that is none, its fields."""
    mark, fields = landing.quote, csv_fields(header, landing)
    return [
        field.decode("utf-8", "replace").strip(f" \t{mark}").replace(mark * 2, mark)
        for field in fields
    ]


def csv_fields(record: bytes, landing: Landing) -> list[bytes]:
    """The fields of a whole record, each as it stands there."""
    sign = landing.delimiter.encode()
    return [found[1] for found in _field(landing.delimiter, landing.quote).finditer(record + sign)]


def no_end(content: bytes, line: int, landing: Landing, limit: int) -> str:
    """Why it is unknown where a record ends; `content` begins with it, in this line, and with more than `limit` bytes is not all."""
    mark, place = landing.quote.encode(), 0
    while found := _field(landing.delimiter, landing.quote).match(content, place):
        place = found.end()
    found = re.compile(_field_pattern(landing.delimiter, landing.quote)).match(content, place)
    end = found.end() if found else place
    if (
        not content.startswith(mark, place)
        or end == len(content)
        or content.startswith((b"\r", b"\n"), end)
    ):
        return f"the record that begins in line {line} has more than {limit} bytes, the limit"
    opened = f"the quote that opens in line {line + len(LINE_BREAK.findall(content, 0, place))}"
    if end > place:
        closed = line + len(LINE_BREAK.findall(content, 0, end))
        return f"{opened} is closed in line {closed} before other text, and a quote inside quotes is doubled"
    return (
        f"{opened} is not closed within {limit} bytes, the limit of a record"
        if len(content) > limit
        else f"{opened} is never closed"
    )


def csv_value(field: bytes, landing: Landing) -> str | None:
    """The text of a field, `None` where it is a missing value."""
    text, mark = field.decode("utf-8", "backslashreplace"), landing.quote
    if text.startswith(
        mark
    ):  # behind a blank it is a sign like any other, as the grammar of a field has it
        text = text.rstrip(" \t")[1:-1].replace(mark * 2, mark)
        return None if not text and not landing.null_value else text
    return (
        None if text == landing.null_value or (not text and not landing.keeps_empty_texts) else text
    )


@cache
def _field(delimiter: str, quote: str) -> re.Pattern[bytes]:
    """The pattern of a field and the delimiter behind it."""
    return re.compile(
        rb"(%b)%b" % (_field_pattern(delimiter, quote), re.escape(delimiter).encode())
    )


def _field_pattern(delimiter: str, quote: str) -> bytes:
    """The pattern of one field. Source: RFC 4180, section 2; one without quotes may hold some, blanks may follow a closing quote."""
    sign, mark, blanks = (
        re.escape(delimiter).encode(),
        re.escape(quote).encode(),
        " \t".replace(delimiter, "").encode(),
    )
    quoted = rb"%b(?:[^%b]++|%b%b)*+%b[%b]*+" % (mark, mark, mark, mark, mark, blanks)
    return rb"(?:%b|[^%b%b\r\n][^%b\r\n]*+|)" % (quoted, mark, sign, sign)
