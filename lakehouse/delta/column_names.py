"""Reads column names from a Spark DDL string, and checks lists of column names."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from lakehouse.base.errors import Refused
from lakehouse.base.text import nearest_words

_FIELD = re.compile(r"(?:`((?:[^`]|``)+)`|(\w+))(?:\s*:\s*|\s+)\S", re.DOTALL)
# A bracket, a comma or a quoted part. A quote that is not closed extends to the end.
# Source: Spark's SqlBaseLexer.g4, STRING_LITERAL and BACKQUOTED_IDENTIFIER
_TOKEN = re.compile(r"""[<>(),]|'(?:[^'\\]|\\.)*+'?|"(?:[^"\\]|\\.)*+"?|`[^`]*+`?""", re.DOTALL)


def field_names(ddl: str | None) -> tuple[str, ...]:
    """The top-level fields of a Spark DDL string; empty if any field has no name or no type."""
    return tuple(name for name, _ in field_types(ddl))


@cache
def field_types(ddl: str | None) -> tuple[tuple[str, str], ...]:
    """The top-level fields with their types, including a suffix like `NOT NULL`.

    Empty if any field has no name or no type.
    """
    parts = list[str]()
    fields = list[tuple[str, str]]()
    text = ddl or ""
    depth = 0
    start = 0
    for token in _TOKEN.finditer(text):
        if token[0] in "<(":
            depth += 1
        elif token[0] in ">)":
            depth -= 1
        elif token[0] == "," and depth == 0:
            parts.append(text[start : token.start()])
            start = token.end()
    for part in map(str.strip, (*parts, text[start:])):
        match = _FIELD.match(part)
        if match is None:
            return ()
        name = (match[1] or "").replace("``", "`") or match[2]
        # `_FIELD` ends with the first character of the type.
        fields.append((name, part[match.end() - 1 :]))
    return tuple(fields)


@cache
def struct_types(type_: str) -> dict[str, str]:
    """The fields of a STRUCT with their types; empty for any other type."""
    text = type_.strip()
    match = re.match(r"struct\s*<", text, re.IGNORECASE)
    if match is None:
        return {}
    fields_text = text[match.end() :]
    depth = 1
    for token in _TOKEN.finditer(fields_text):
        if token[0] == "<":
            depth += 1
        elif token[0] == ">":
            depth -= 1
        if depth == 0:
            return dict(field_types(fields_text[: token.start()]))
    return {}


def type_word(type_: str) -> str:
    """The first word of a type, in upper case, such as `DECIMAL` of `decimal(8, 2)`."""
    word = re.match(r"\w*", type_.strip())
    return word[0].upper() if word else ""


def check_columns(what: str, names: Sequence[Any], *, among: Sequence[str] | None = None) -> None:
    """Refuses a lone string, an empty or duplicate name, and a column that is not in `among`.

    Names that differ only in case are duplicates, as in Spark. But a column must have the same case
    as in `among`.
    """
    if isinstance(names, str):
        raise Refused(
            f"{what} is {names!r}, which is one string. Use a tuple of names, like ({names!r},)."
        )
    seen: set[str] = set()
    for name in names:
        if not isinstance(name, str):
            raise Refused(f"{what} holds {name!r}. Use names of columns.")
        if not name.strip():
            raise Refused(f"{what} holds the empty name {name!r}. Use names of columns.")
        if name.lower() in seen:
            raise Refused(
                f"{what} holds {name!r} twice. Name each column once; upper and lower case are"
                " equal."
            )
        seen.add(name.lower())
        if among is not None and name not in among:
            near = nearest_words(name, among, most=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"Use one of {', '.join(among)}."
            raise Refused(f"{what} holds the unknown column {name!r}. {hint}")


def check_renamed(
    what: str, renamed: Mapping[str, str], columns: Sequence[str] | None = None
) -> None:
    """Refuses a renaming if the old name is still declared, or if the new name is not declared.

    Also refuses empty names, names that start with `_`, and an old name that is the new name of
    another renaming. `columns` are the declared columns, or `None` if they are unknown.
    """
    for old, new in renamed.items():
        if not old.strip() or not new.strip() or old.startswith("_") or new.startswith("_"):
            raise Refused(
                f"{what} maps {old!r} to {new!r}. Use column names that do not start with _."
            )
        if old in renamed.values():
            raise Refused(
                f"{what} maps {old!r} to {new!r}, and another name to {old!r}. Use only the present"
                " name as the target of each earlier name."
            )
        if old.lower() == new.lower():
            raise Refused(
                f"{what} maps {old!r} to {new!r}, but names that differ only in upper and lower"
                " case are one column. Leave it out."
            )
        if columns is not None and old.lower() in [name.lower() for name in columns]:
            raise Refused(
                f"{what} maps {old!r} to {new!r}, but {old!r} is still declared. Either remove"
                f" {old!r} from the declared columns, or from renamed."
            )
    if columns is not None:
        check_columns(what, [*dict.fromkeys(renamed.values())], among=columns)
