"""Names of columns: which ones a Spark DDL string declares, and whether a list of them can be meant."""

import re
from collections.abc import Iterator, Sequence
from functools import cache

from lakehouse.core.errors import Refused
from lakehouse.core.text import nearest_words

_FIELD = re.compile(r"(?:`((?:[^`]|``)+)`|(\w+))(?:\s*:\s*|\s+)\S", re.DOTALL)
_OPENING, _CLOSING = "<(", ">)"
# One that is not closed goes on to the end.
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*+'?|"(?:[^"\\]|\\.)*+"?|`[^`]*+`?""", re.DOTALL)


def field_names(ddl: str | None) -> tuple[str, ...]:
    """The top-level fields of a Spark DDL string, in order; empty where it declares none or a field lacks its name or type.

    >>> field_names("id BIGINT, `a b` STRUCT<x: INT, y: DECIMAL(10, 2)> COMMENT 'x, y', at TIMESTAMP NOT NULL")
    ('id', 'a b', 'at')
    """
    return tuple(name for name, _ in field_types(ddl))


@cache
def field_types(ddl: str | None) -> tuple[tuple[str, str], ...]:
    """The same fields, each with its type and whatever stands behind it.

    >>> field_types("id BIGINT, at TIMESTAMP NOT NULL")
    (('id', 'BIGINT'), ('at', 'TIMESTAMP NOT NULL'))
    """
    found: list[tuple[str, str]] = []
    for part in map(str.strip, _top_level_parts(ddl or "")):
        match = _FIELD.match(part)
        if match is None:
            return ()
        found.append(((match[1] or "").replace("``", "`") or match[2], part[match.end() - 1 :]))
    return tuple(found)


@cache
def struct_types(type_: str) -> dict[str, str]:
    """The members of a STRUCT with their types; none where it is another type.

    >>> struct_types("STRUCT<a: INT, b: STRUCT<c: DATE>> NOT NULL")
    {'a': 'INT', 'b': 'STRUCT<c: DATE>'}
    """
    match = re.match(r"struct\s*<", type_.strip(), re.IGNORECASE)
    inside, depth = type_.strip()[match.end() :] if match else "", 1
    for place, sign in _outside_quotes(inside):
        depth += (sign == "<") - (sign == ">")
        if not depth:
            return dict(field_types(inside[:place]))
    return {}


def check_columns(what: str, names: Sequence[str], *, among: Sequence[str] | None = None) -> None:
    """Refuse a lone string, an empty name, the same column twice (Spark knows no upper and lower case), or one not `among` those there are.

    Raises:
        Refused: with `what` and the name.
    """
    if isinstance(names, str):
        raise Refused(f"{what} is {names!r}, which is one string; accepted: a tuple of names, like ({names!r},)")
    seen: set[str] = set()
    for name in names:
        if not name.strip():
            raise Refused(f"{what} holds the empty name {name!r}; accepted: names of columns")
        if name.lower() in seen:
            raise Refused(f"{what} holds {name!r} twice; accepted: each column once, upper and lower case being the same")
        seen.add(name.lower())
        if among is not None and name not in among:
            near = nearest_words(name, among, most=1)
            raise Refused(f"{what} holds {name!r}; accepted: {f'did you mean {near[0]!r}?' if near else ', '.join(among)}")


def _top_level_parts(ddl: str) -> list[str]:
    """The string cut at the commas that stand in no brackets and no quotes."""
    parts: list[str] = []
    depth, start = 0, 0
    for place, sign in _outside_quotes(ddl):
        if sign in _OPENING + _CLOSING:
            depth += 1 if sign in _OPENING else -1
        elif sign == "," and depth == 0:
            parts.append(ddl[start:place])
            start = place + 1
    return [*parts, ddl[start:]]


def _outside_quotes(ddl: str) -> Iterator[tuple[int, str]]:
    """The signs that stand in no quotes, with their places. Source: Spark's SqlBaseLexer.g4, STRING_LITERAL and BACKQUOTED_IDENTIFIER."""
    place, end = 0, len(ddl)
    while place < end:
        if quoted := _QUOTED.match(ddl, place):
            place = quoted.end()
        else:
            yield place, ddl[place]
            place += 1
