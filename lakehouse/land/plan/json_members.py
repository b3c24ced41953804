"""Splits the text of a JSON object into members, so that they can be replaced or renamed."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

_MEMBER = re.compile(r'[\s{,]*("(?:[^"\\]|\\.)*+")\s*:\s*')
# Reads the JSON value at a position, and returns it with the position after it.
_scanned: Callable[[str, int], tuple[Any, int]] = vars(json.JSONDecoder())["scan_once"]
# The beginning of `PresentRow.problem`.
TWO_NAMES = "different values under two names of a column: "
# Decodes each number to its text, because two different numbers may be the same float.
_spelled_value = json.JSONDecoder(parse_float=str, parse_int=str).decode


class PresentRow(NamedTuple):
    """A row whose fields have their present names, as a value and as JSON text.

    `earlier` maps the present names of renamed fields to the earlier ones. There is a `problem` if
    two names of a column have different values, neither of which is null.
    """

    row: dict[str, Any]
    text: str
    earlier: Mapping[str, str] = {}
    problem: str | None = None


def members_of(text: str) -> dict[str, str]:
    """The members of a JSON object, each value as the text spells it."""
    members = dict[str, str]()
    position = 0
    while match := _MEMBER.match(text, position):
        spelled = match[1]
        _, position = _scanned(text, match.end())
        name = spelled[1:-1] if "\\" not in spelled else json.loads(spelled)
        members[name] = text[match.end() : position]
    return members


def object_of(members: Iterable[tuple[str, str]]) -> str:
    """The JSON object with these members."""
    parts = [f"{_spelled(name)}: {value}" for name, value in members]
    return f"{{{', '.join(parts)}}}"


def with_present_names(row: dict[str, Any], text: str, names: Mapping[str, str]) -> PresentRow:
    """A row with each earlier name of a field in `names` replaced by its present name.

    Nothing is changed if the row has no earlier name. If the present name is missing or null, it
    gets the value of the earlier name.
    """
    earlier_names = [name for name in names if name in row]
    if not earlier_names:
        return PresentRow(row, text)
    members = members_of(text)
    present_row = {name: value for name, value in row.items() if name not in names}
    texts = {name: members[name] for name in present_row}
    earlier = dict[str, str]()
    problem: str | None = None
    for name in earlier_names:
        present = names[name]
        value = row[name]
        if present_row.get(present) is None:
            present_row[present] = value
            texts[present] = members[name]
            earlier[present] = name
        elif value is not None and not _is_same(members[name], texts[present]):
            problem = problem or f"{TWO_NAMES}{name} and {earlier.get(present, present)}"
    return PresentRow(present_row, object_of(texts.items()), earlier, problem)


def _is_same(one: str, other: str) -> bool:
    """Whether two JSON texts have the same value.

    `1.0` and `1.00` count as different, but `1` and `"1"` as the same.
    """
    if one == other:
        return True
    return _canonical(one) == _canonical(other)


def _canonical(text: str) -> str:
    return json.dumps(_spelled_value(text), sort_keys=True)


def _spelled(name: str) -> str:
    return f'"{name}"' if name.isidentifier() else json.dumps(name, ensure_ascii=False)
