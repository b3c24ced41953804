"""Decides whether a change of a column's type is a widening, which Delta can make in place."""

import re

_WHOLE = ("tinyint", "smallint", "int", "bigint")
# The number of digits that a decimal needs before its point. Delta requires as many for the smaller
# types as for `int`.
_DIGITS = {"tinyint": 10, "smallint": 10, "int": 10, "bigint": 20}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")


def is_wider(before: str, after: str) -> bool:
    """Whether Delta can widen type `before` to `after`, another type. Both are Spark's strings.

    Source: Delta's protocol, "Type Widening", supported type changes.
    """
    if before in _WHOLE and after in _WHOLE:
        return _WHOLE.index(before) < _WHOLE.index(after)
    if (before, after) in (("float", "double"), ("date", "timestamp_ntz")):
        return True
    if after == "double":
        return before in ("tinyint", "smallint", "int")
    target = _DECIMAL.fullmatch(after)
    if target is None:
        return False
    precision = int(target[1])
    scale = int(target[2])
    if before in _DIGITS:
        return precision - scale >= _DIGITS[before]
    source = _DECIMAL.fullmatch(before)
    if source is None:
        return False
    source_scale = int(source[2])
    has_digits = precision - scale >= int(source[1]) - source_scale
    return before != after and scale >= source_scale and has_digits
