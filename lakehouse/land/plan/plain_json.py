"""A pattern of JSON lines that need no closer look: one flat object with declared fields only.

Spark parses such a line into columns without misreading a value, and finds what is out of range.
"""

import re
from collections.abc import Mapping

from lakehouse.delta.column_names import type_word

_WHOLE = r"-?(?:0|[1-9][0-9]{0,17})"
_FRACTION = rf"{_WHOLE}(?:\.[0-9]{{1,25}})?"
_DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK = r"[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?"
# The forms of a value, by the first word of the declared type. A value of another type, such as a
# nested one, has no plain form.
_FORMS = {
    **dict.fromkeys(("SMALLINT", "SHORT", "INT", "INTEGER", "BIGINT", "LONG"), _WHOLE),
    **dict.fromkeys(("TINYINT", "BYTE"), r"-?(?:0|[1-9][0-9]?)"),
    "BOOLEAN": "true|false",
    **dict.fromkeys(("DECIMAL", "DEC", "NUMERIC"), rf'{_FRACTION}|"{_FRACTION}"'),
    "DOUBLE": rf"{_FRACTION}(?:[eE][-+]?[0-9]{{1,2}})?",
    **dict.fromkeys(("FLOAT", "REAL"), _FRACTION),
    "STRING": r'"[^"\\\x00-\x1f]*"',
    "DATE": rf'"{_DAY}"',
    **dict.fromkeys(
        ("TIMESTAMP", "TIMESTAMP_LTZ"),
        rf'"{_DAY}(?:{_CLOCK}(?:Z|[-+][0-9]{{2}}:[0-9]{{2}})?)?"',
    ),
    "TIMESTAMP_NTZ": rf'"{_DAY}(?:{_CLOCK})?"',
}
# The pattern tries one name after the other, so it is not worth its time for a wide table.
_MOST_FIELDS = 100


def plain_line_pattern(types: Mapping[str, str]) -> str | None:
    """A regular expression of Python and Java that plain lines match.

    `types` are the declared fields with their types. `None` if they are many, or if no value of
    them has a plain form.
    """
    if len(types) > _MOST_FIELDS:
        return None
    members = [
        rf'{re.escape(name)}"[ \t]*:[ \t]*(?:{_FORMS[type_word(type_)]}|null)'
        for name, type_ in types.items()
        if type_word(type_) in _FORMS and '"' not in name and "\\" not in name
    ]
    if not members:
        return None
    member = rf'[ \t]*"(?:{"|".join(members)})[ \t]*'
    # After a comma, another member follows. `$` would also match before a line separator.
    return rf'^[ \t]*\{{(?:{member}(?:,(?=[ \t]*")|(?=\}})))*+\}}[ \t]*(?![\s\S])'
