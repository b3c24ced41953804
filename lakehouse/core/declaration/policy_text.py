"""A policy in words, as a person writes it on a command line: `min_small_files=8`, `target_file_bytes=64MiB`, `mode=off`."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, fields, replace
from typing import Any, get_args

from lakehouse.core.declaration.compaction_policy import Compaction, type_of_data_layout
from lakehouse.core.declaration.strategies import type_of_strategy
from lakehouse.core.declaration.windows import DAYS, Window
from lakehouse.core.errors import Refused
from lakehouse.core.text import nearest_words

_UNITS = {"": 1, "B": 1, "KIB": 1024, "MIB": 1024**2, "GIB": 1024**3, "TIB": 1024**4, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SIZE = re.compile(r"([\d_]+(?:\.\d+)?) ?([A-Za-z]*)")
# Values of one field at most, which is told after a colon: `scheduled:0 3 * * *`.
_KINDS = {"strategy": get_args(type_of_strategy), "data_layout": get_args(type_of_data_layout)}
_READ: Mapping[Any, Callable[[str], Any]] = {str: str, float: float, tuple[str, ...]: lambda text: tuple(text.split(","))}


def parse_policy(words: Iterable[str], declared: Compaction) -> Compaction:
    """The declared policy, with the knobs that `words` name set to their values; another knob or value is refused."""
    knobs = {knob.name: knob for knob in fields(Compaction)}
    chosen: dict[str, Any] = {}
    for word in words:
        name, equals, text = (part.strip() for part in word.partition("="))
        if not equals:
            raise Refused(f"policy {word!r} has no value; accepted: name=value, like min_small_files=8")
        if name not in knobs:
            near = nearest_words(name, knobs)
            raise Refused(f"policy has no {name!r}; " + (f"did you mean {' or '.join(near)}?" if near else f"accepted: {', '.join(knobs)}"))
        chosen[name] = _value(knobs[name], text)
    return replace(declared, **chosen)


def _value(knob: Field[Any], text: str) -> Any:
    match knob.name:
        case "strategy" if text == "none":
            raise Refused("policy strategy is 'none'; accepted: mode=off, under which nothing runs")
        case "strategy" | "data_layout":
            return _named(knob.name, text)
        case "windows":
            return tuple(_window(part.strip()) for part in text.split(";") if part.strip())
        case "mode" | "verify":
            return text
        case _:
            return _number(knob, text)


def _named(name: str, text: str) -> Any:
    known = {re.sub(r"\B(?=[A-Z])", "_", kind.__name__).lower(): kind for kind in _KINDS[name]}
    word, more = (part.strip() for part in text.partition(":")[::2])
    if word not in known:
        raise Refused(f"policy {name} is {text!r}; accepted: {', '.join(known)}")
    try:
        return known[word](**{each.name: _READ[each.type](more) for each in fields(known[word])})
    except ValueError as error:
        raise Refused(f"policy {name} is {text!r}; accepted after the colon: a number") from error


def _window(text: str) -> Window:
    """`22:00-04:00`, or with the days on which it starts before it: `mon,tue 22:00-04:00`."""
    days, _, hours = text.rpartition(" ")
    start, _, end = hours.partition("-")
    return Window(start=start, end=end, days=tuple(days.replace(" ", "").split(",")) if days else DAYS)


def _number(knob: Field[Any], text: str) -> int | float:
    is_size = "_bytes" in knob.name
    match = _SIZE.fullmatch(text)
    unit = match[2].upper() if match else ""
    if match is None or unit not in _UNITS or (unit and not is_size):
        sizes = "a size, like 128MiB" if is_size else "a number"
        raise Refused(f"policy {knob.name} is {text!r}; accepted: {sizes}")
    value = (float(match[1]) if "." in match[1] else int(match[1])) * _UNITS[unit]
    return value if knob.type is float or value != int(value) else int(value)
