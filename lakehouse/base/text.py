"""Text for people (sizes, counts, times, names), the units of time, and JSON documents.

`printable` escapes names and errors from outside, so that they cannot control a terminal or a page.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from difflib import get_close_matches
from math import floor, log10
from typing import Any, cast

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
# 0001-01-01, the earliest time that Python can represent.
EARLIEST_MS = -62_135_596_800_000

# An object in JSON, for example what a command prints with `--json`.
Document = dict[str, Any]


def object_of(value: Any) -> Document:
    """The value if it is an object in JSON, otherwise an empty one."""
    return cast("Document", value) if isinstance(value, dict) else {}


# Words that are less similar than this (`difflib.SequenceMatcher.ratio`) are not suggested.
_LEAST_SIMILARITY = 0.5
_SPANS = (("years", 365 * 86_400), ("days", 86_400), ("h", 3_600), ("min", 60))
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size_text(count: int) -> str:
    """A number of bytes with a unit, for example `303 B`, `1.5 KiB` or `32 MiB`."""
    size = float(count)
    unit = 0
    while size >= 999.5 and unit < len(_UNITS) - 1:
        size /= 1024
        unit += 1
    number = f"{size:.1f}".removesuffix(".0") if size < 9.95 else f"{size:.0f}"
    return f"{number} {_UNITS[unit]}"


def usd_text(usd: Decimal | float) -> str:
    """The amount with at most three significant digits and no exponent."""
    if usd == 0:
        return "0"
    if abs(usd) >= 99.95:
        return f"{usd:,.0f}"
    if abs(usd) < 1e-6:
        return "under 0.000001"
    digits = max(0, 2 - floor(log10(abs(usd))))
    text = f"{usd:.{digits}f}"
    return text.rstrip("0").rstrip(".") if digits else text


def span_text(seconds: float) -> str:
    """A length of time in one unit, for example `40 s`, `36 h` or `12 days`."""
    for unit, unit_seconds in _SPANS:
        if seconds >= 2 * unit_seconds:
            return f"{seconds / unit_seconds:,.0f} {unit}"
    return f"{seconds:.0f} s"


def count_of(count: int, noun: str) -> str:
    """A count with its noun: `1 file`, `6 files`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def first_names(names: Sequence[str], *, most: int = 3) -> str:
    """The first names, for example `a.txt, b.txt, c.txt and 80 more`, each made `printable`."""
    named = ", ".join(printable(name) for name in names[:most])
    return f"{named} and {len(names) - most} more" if len(names) > most else named


def either(words: Sequence[str]) -> str:
    """A choice between words, at least one: `a, b or c`."""
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


def names_in_parentheses(names: Sequence[str]) -> str:
    """The first names as the end of a sentence, for example ` (a.txt, b.txt)`, or empty."""
    return f" ({first_names(names)})" if names else ""


def utc_text(ms: int) -> str:
    """A time as text: `2013-01-08 05:00 UTC`."""
    return f"{datetime.fromtimestamp(ms / 1000, tz=UTC):%Y-%m-%d %H:%M} UTC"


def printable(text: str, *, keep: str = "") -> str:
    r"""The text with unprintable characters escaped, for example as `\x1b`, except those in `keep`.

    Control characters can change a terminal, direction marks reorder the text of a page, and lone
    surrogates cannot be encoded. Source: Python's `str.isprintable`, which `repr` uses.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in keep else each.encode("unicode_escape").decode()
        for each in text
    )


def nearest_words(word: str, known: Iterable[str], *, most: int = 3) -> list[str]:
    """The known words that the misspelled `word` may mean, most similar first."""
    return get_close_matches(word, [*known], n=most, cutoff=_LEAST_SIMILARITY)
