"""Fields of actions that somebody else wrote, each of the type that the protocol gives it.

Every function raises `ValueError`, with the field's name and what was found, where a field is
missing, null or of another type. Whoever reads a file turns that into `Broken` with the file's
name, which names table and version. Source: PROTOCOL.md, "Actions".
"""

from collections.abc import Mapping
from typing import Any

# The errors of code that takes a damaged or foreign file for an action; nesting without end raises
# one.
MALFORMED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)

TextPairs = tuple[tuple[str, str | None], ...]


def text(action: Mapping[str, Any], name: str) -> str:
    """A text that is not empty."""
    value = action.get(name)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} is {_shown(action, name)}, and must be a text")
    return value


def any_text(action: Mapping[str, Any], name: str) -> str:
    """A text, which may be empty."""
    return "" if action.get(name) == "" else text(action, name)


def number(action: Mapping[str, Any], name: str) -> int:
    """A whole number; none of those that are asked for here is ever negative."""
    value = action.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{name} is {_shown(action, name)}, and must be a whole number")
    return value


def number_or_none(action: Mapping[str, Any], name: str) -> int | None:
    """A whole number that may be left out."""
    return None if action.get(name) is None else number(action, name)


def flag(action: Mapping[str, Any], name: str) -> bool:
    """A boolean."""
    value = action.get(name)
    if not isinstance(value, bool):
        raise ValueError(f"{name} is {_shown(action, name)}, and must be true or false")
    return value


def texts(action: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """A list of texts."""
    value = action.get(name)
    if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
        raise ValueError(f"{name} is {_shown(action, name)}, and must be a list of texts")
    return tuple(value)


def pairs(action: Mapping[str, Any], name: str) -> TextPairs:
    """A map of texts, as pairs; values may be null."""
    value = action.get(name)
    if not isinstance(value, Mapping) or not all(
        isinstance(each, str | None) for each in value.values()
    ):
        raise ValueError(f"{name} is {_shown(action, name)}, and must be a map of texts")
    return tuple(value.items())


def part(action: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A structure within the action."""
    value = action.get(name)
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} is {_shown(action, name)}, and must be a structure")
    return value


def _shown(action: Mapping[str, Any], name: str) -> str:
    return repr(action[name])[:80] if name in action else "missing"
