"""Parses a policy from a command line, like `min_small_files=8 target_file_bytes=64MiB`."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, fields, replace
from typing import Any

from lakehouse.core.declaration.compaction_policy import (
    BinPacking,
    Compaction,
    LiquidClustering,
    ZOrder,
)
from lakehouse.core.declaration.strategies import (
    AfterWrite,
    BySensor,
    Scheduled,
)
from lakehouse.core.declaration.windows_and_cron import Window
from lakehouse.core.errors import Refused
from lakehouse.core.text import either, nearest_words

_UNITS = {
    "": 1,
    "B": 1,
    "KIB": 1024,
    "MIB": 1024**2,
    "GIB": 1024**3,
    "TIB": 1024**4,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
}
_SIZE = re.compile(r"([\d_]+(?:\.\d+)?) ?([A-Za-z]*)")
# An argument follows a colon: `scheduled:0 3 * * *`.
_STRATEGIES: Mapping[str, Callable[[str], Any]] = {
    "after_write": lambda _: AfterWrite(),
    "scheduled": lambda cron: Scheduled(cron=cron),
    "by_sensor": lambda _: BySensor(),
}
_LAYOUTS: Mapping[str, Callable[[str], Any]] = {
    "bin_packing": lambda _: BinPacking(),
    "z_order": lambda columns: ZOrder(columns=tuple(columns.split(","))),
    "liquid_clustering": lambda columns: LiquidClustering(columns=tuple(columns.split(","))),
}


def parse_policy(words: Iterable[str], declared: Compaction) -> Compaction:
    """The declared policy with the knobs that `words` set.

    Raises:
        Refused: a knob is unknown, or does not accept its value.
    """
    knobs = {knob.name: knob for knob in fields(Compaction)}
    chosen: dict[str, Any] = {}
    for word in words:
        name, equals, text = (part.strip() for part in word.partition("="))
        if not equals:
            raise Refused(f"policy {word!r} has no value. Use name=value, like min_small_files=8.")
        if name not in knobs:
            near = nearest_words(name, knobs)
            hint = f"Did you mean {either(near)}?" if near else f"Use one of {', '.join(knobs)}."
            raise Refused(f"policy has no knob {name!r}. {hint}")
        chosen[name] = _value(knobs[name], text)
    return replace(declared, **chosen)


def _value(knob: Field[Any], text: str) -> Any:
    match knob.name:
        case "strategy" if text == "none":
            raise Refused("policy strategy is 'none'. Use mode=off: then nothing runs.")
        case "strategy":
            return _named(knob.name, text, _STRATEGIES)
        case "data_layout":
            return _named(knob.name, text, _LAYOUTS)
        case "windows":
            return tuple(_window(part.strip()) for part in text.split(";") if part.strip())
        case "mode" | "verify" | "engine":
            return text
        case _:
            return _number(knob, text)


def _named(name: str, text: str, known: Mapping[str, Callable[[str], Any]]) -> Any:
    kind, _, argument = text.partition(":")
    if kind.strip() not in known:
        raise Refused(f"policy {name} is {text!r}. Use {either([*known])}.")
    try:
        return known[kind.strip()](argument.strip())
    except ValueError as error:
        raise Refused(f"policy {name} is {text!r}. Use a number after the colon.") from error


def _window(text: str) -> Window:
    """A window like `22:00-04:00`, or with the days on which it starts: `mon,tue 22:00-04:00`."""
    days, _, hours = text.rpartition(" ")
    start, _, end = hours.partition("-")
    if not days:
        return Window(start=start, end=end)
    return Window(start=start, end=end, days=tuple(days.replace(" ", "").split(",")))


def _number(knob: Field[Any], text: str) -> int | float:
    """A number or, for a knob in bytes, also a size with a unit, like `64MiB`."""
    is_size = "_bytes" in knob.name
    match = _SIZE.fullmatch(text)
    unit = match[2].upper() if match else ""
    if match is None or unit not in _UNITS or (unit and not is_size):
        expected = "a size, like 128MiB" if is_size else "a number"
        raise Refused(f"policy {knob.name} is {text!r}. Use {expected}.")
    number = float(match[1]) if "." in match[1] else int(match[1])
    value = number * _UNITS[unit]
    is_whole = value == int(value)
    return int(value) if is_whole and knob.type is not float else value
