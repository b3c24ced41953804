"""Names of columns: which ones a Spark DDL string declares, and whether a list of them can be meant."""

import re
from collections.abc import Sequence
from functools import cache

from lakehouse.core.errors import Refused
from lakehouse.core.text import nearest_words

_FIELD = re.compile(r"(?:`((?:[^`]|``)+)`|(\w+))(?:\s*:\s*|\s+)\S", re.DOTALL)
# A sign that means something, or quotes with all inside them; quotes that are not closed go on to the end.
# Source: Spark's SqlBaseLexer.g4, STRING_LITERAL and BACKQUOTED_IDENTIFIER
_SIGN = re.compile(r"""[<>(),]|'(?:[^'\\]|\\.)*+'?|"(?:[^"\\]|\\.)*+"?|`[^`]*+`?""", re.DOTALL)


def field_names(ddl: str | None) -> tuple[str, ...]:
    """The top-level fields of a Spark DDL string, in order; empty where it declares none or a field lacks its name or type."""
    return tuple(name for name, _ in field_types(ddl))


@cache
def field_types(ddl: str | None) -> tuple[tuple[str, str], ...]:
    """The same fields, each with its type and whatever stands behind it, like `NOT NULL`."""
    parts, found = list[str](), list[tuple[str, str]]()
    text, depth, start = ddl or "", 0, 0
    for sign in _SIGN.finditer(text):
        depth += (sign[0] in "<(") - (sign[0] in ">)")
        if sign[0] == "," and depth == 0:
            parts.append(text[start : sign.start()])
            start = sign.end()
    for part in map(str.strip, (*parts, text[start:])):
        match = _FIELD.match(part)
        if match is None:
            return ()
        found.append(((match[1] or "").replace("``", "`") or match[2], part[match.end() - 1 :]))
    return tuple(found)


@cache
def struct_types(type_: str) -> dict[str, str]:
    """The members of a STRUCT with their types; none where it is another type."""
    match = re.match(r"struct\s*<", type_.strip(), re.IGNORECASE)
    inside, depth = type_.strip()[match.end() :] if match else "", 1
    for sign in _SIGN.finditer(inside):
        depth += (sign[0] == "<") - (sign[0] == ">")
        if not depth:
            return dict(field_types(inside[: sign.start()]))
    return {}


def check_columns(what: str, names: Sequence[str], *, among: Sequence[str] | None = None) -> None:
    """Refuse a lone string, an empty name, the same column twice (Spark knows no upper and lower case), or one that is not `among` them."""
    if isinstance(names, str):
        raise Refused(
            f"{what} is {names!r}, which is one string; accepted: a tuple of names, like ({names!r},)"
        )
    seen: set[str] = set()
    for name in names:
        if not name.strip():
            raise Refused(f"{what} holds the empty name {name!r}; accepted: names of columns")
        if name.lower() in seen:
            raise Refused(
                f"{what} holds {name!r} twice; accepted: each column once, upper and lower case being the same"
            )
        seen.add(name.lower())
        if among is not None and name not in among:
            near = nearest_words(name, among, most=1)
            raise Refused(
                f"{what} holds {name!r}; accepted: {f'did you mean {near[0]!r}?' if near else ', '.join(among)}"
            )
