"""Python source of declarations, formatted as `ruff format` does."""

import re
from collections.abc import Sequence
from dataclasses import is_dataclass
from typing import Any, cast

from lakehouse.declare.knobs import changed_fields
from lakehouse.declare.landing import Landing
from lakehouse.declare.table import Table

_WIDTH = 100
# These are written with one argument per line, so that they are easy to edit.
_SPREAD = (Table, Landing)


def python_text(text: str) -> str:
    """A text as a Python literal. Every name that reaches Python source passes here."""
    literal = repr(text)
    return f'"{literal[1:-1]}"' if literal[0] == "'" and '"' not in literal else literal


def python_source(lead: str, value: Any, *, indent: int = 0, end: str = "") -> list[str]:
    """The lines of `lead`, the Python source of a value, and `end`."""
    margin = " " * indent
    line = f"{margin}{lead}{_one_line(value)}{end}"
    opening, parts, closing = _parts(value)
    is_short = len(line) <= _WIDTH and not isinstance(value, _SPREAD)
    if is_short or not parts:
        return [line]
    # Parts of a text are concatenated, without a comma between them.
    part_end = "" if isinstance(value, str) else ","
    lines = [f"{margin}{lead}{opening}"]
    for part_lead, part in parts:
        lines += python_source(part_lead, part, indent=indent + 4, end=part_end)
    return [*lines, f"{margin}{closing}{end}"]


def _one_line(value: Any) -> str:
    if isinstance(value, str):
        return python_text(value)
    opening, parts, closing = _parts(value)
    if not opening:
        return repr(value)
    comma = "," if isinstance(value, tuple) and len(parts) == 1 else ""
    return f"{opening}{', '.join(lead + _one_line(part) for lead, part in parts)}{comma}{closing}"


def _parts(value: Any) -> tuple[str, Sequence[tuple[str, Any]], str]:
    """What opens a value, the leads and values of its parts, and what closes it."""
    match value:
        case str():
            pieces = re.split(r"(?<=, )", value)
            return "(", [("", piece) for piece in pieces if len(pieces) > 1], ")"
        case tuple():
            return "(", [("", part) for part in cast("tuple[Any, ...]", value)], ")"
        case dict():
            items = cast("dict[str, Any]", value).items()
            return "{", [(f"{python_text(name)}: ", part) for name, part in items], "}"
        case _ if is_dataclass(value):
            parts = [(f"{name}=", part) for name, part in changed_fields(value).items()]
            return f"{type(value).__name__}(", parts, ")"
        case _:
            return "", [], ""
