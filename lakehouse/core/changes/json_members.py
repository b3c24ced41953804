"""Members of a JSON object as its text spells them, so that one can be rewritten by itself."""

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

_MEMBER = re.compile(r'[\s{,]*("(?:[^"\\]|\\.)*+")\s*:\s*')
# A value, and the position after it.
_scanned: Callable[[str, int], tuple[Any, int]] = vars(json.JSONDecoder())["scan_once"]


def members_of(text: str) -> dict[str, str]:
    """The members of a JSON object, each value as the text spells it."""
    found = dict[str, str]()
    place = 0
    while match := _MEMBER.match(text, place):
        spelled = match[1]
        _, place = _scanned(text, match.end())
        name = spelled[1:-1] if "\\" not in spelled else json.loads(spelled)
        found[name] = text[match.end() : place]
    return found


def object_of(members: Iterable[tuple[str, str]]) -> str:
    """The JSON object with these members."""
    parts = [f"{_spelled(name)}: {value}" for name, value in members]
    return f"{{{', '.join(parts)}}}"


def _spelled(name: str) -> str:
    return f'"{name}"' if name.isidentifier() else json.dumps(name, ensure_ascii=False)
