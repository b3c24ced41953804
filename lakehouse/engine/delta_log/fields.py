"""Reads the fields of actions, and checks their types, since any program may have written them.

Every function raises `ValueError` if a field is missing, null or of another type. The message has
the field's name and the value. Callers turn this error into `Broken` and add the file's name, which
shows the table and the version. Source: PROTOCOL.md, "Actions".
"""

from collections.abc import Mapping
from typing import Any

# The errors that parsing a damaged or foreign file may raise. Deeply nested JSON raises
# RecursionError.
MALFORMED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)

TextPairs = tuple[tuple[str, str | None], ...]


def text(action: Mapping[str, Any], name: str) -> str:
    """A string, which must not be empty."""
    value = action.get(name)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} is {_shown(action, name)}, and must be a string")
    return value


def any_text(action: Mapping[str, Any], name: str) -> str:
    """A string, which may be empty."""
    return "" if action.get(name) == "" else text(action, name)


def number(action: Mapping[str, Any], name: str) -> int:
    """An integer, which must not be negative: no field that is read here may be."""
    value = action.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{name} is {_shown(action, name)}, and must be an integer, 0 or more")
    return value


def number_or_none(action: Mapping[str, Any], name: str) -> int | None:
    """An optional integer; `None` if it is missing."""
    return None if action.get(name) is None else number(action, name)


def flag(action: Mapping[str, Any], name: str) -> bool:
    """A boolean."""
    value = action.get(name)
    if not isinstance(value, bool):
        raise ValueError(f"{name} is {_shown(action, name)}, and must be true or false")
    return value


def texts(action: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """A list of strings."""
    value = action.get(name)
    if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
        raise ValueError(f"{name} is {_shown(action, name)}, and must be a list of strings")
    return tuple(value)


def pairs(action: Mapping[str, Any], name: str) -> TextPairs:
    """A map of strings, as pairs; values may be null."""
    value = action.get(name)
    if not isinstance(value, Mapping) or not all(
        isinstance(each, str | None) for each in value.values()
    ):
        raise ValueError(f"{name} is {_shown(action, name)}, and must be a map of strings")
    return tuple(value.items())


def part(action: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A struct within the action."""
    value = action.get(name)
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} is {_shown(action, name)}, and must be a struct")
    return value


def _shown(action: Mapping[str, Any], name: str) -> str:
    return repr(action[name])[:80] if name in action else "missing"
