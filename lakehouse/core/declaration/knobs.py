"""A knob is declared once: its default, its accepted values, and its line in `docs/reference/knobs.md` all stand in its field."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from math import inf
from typing import Any, get_args

from lakehouse.core.errors import Refused


@dataclass(frozen=True, slots=True)
class Accepts:
    """The values that a knob takes, in words and as a test."""

    words: str
    test: Callable[[Any], bool]


def whole(least: int, *, or_zero: bool = False) -> Accepts:
    """A whole number from `least` on, or 0 where that means off."""
    words = f"a whole number, {least} or more{', or 0' if or_zero else ''}"
    return Accepts(
        words,
        lambda value: (
            isinstance(value, int)
            and is_number(value)
            and (value >= least or (or_zero and value == 0))
        ),
    )


def one_of(*values: str) -> Accepts:
    """One of these words."""
    return Accepts(", ".join(values), lambda value: value in values)


def instance_of(kinds: Any) -> Accepts:
    """A value of one of the classes of a union."""
    return Accepts(
        ", ".join(kind.__name__ for kind in get_args(kinds)), lambda value: isinstance(value, kinds)
    )


def tuple_of(kind: type) -> Accepts:
    """A tuple of values of this class, an empty one too."""
    return Accepts(
        f"a tuple of {kind.__name__}",
        lambda value: isinstance(value, tuple) and all(isinstance(each, kind) for each in value),
    )  # pyright: ignore[reportUnknownVariableType]


def or_none(accepts: Accepts) -> Accepts:
    """The same values, or `None`."""
    return Accepts(f"{accepts.words}, or None", lambda value: value is None or accepts.test(value))


def is_number(value: object) -> bool:
    """Whether the value is a number; True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


AMOUNT = Accepts("a number, 0 or more", lambda value: is_number(value) and 0 <= value < inf)
YES_OR_NO = Accepts("True, False", lambda value: isinstance(value, bool))
ANY_TEXT = Accepts("a text", lambda value: isinstance(value, str))
TEXT = Accepts("a text that is not empty", lambda value: isinstance(value, str) and bool(value))
SHARE = Accepts("a number above 0, at most 1", lambda value: is_number(value) and 0 < value <= 1)
SHARE_OR_OFF = Accepts(
    "a number from 0 (off) to 1", lambda value: is_number(value) and 0 <= value <= 1
)


def knob(
    default: Any, accepts: Accepts, line: str, *, layers: Mapping[str, Any] | None = None
) -> Any:
    """A field of a declaration; `layers` has the defaults by layer, where they differ."""
    return field(
        default=default, metadata={"accepts": accepts, "line": line, "layers": layers or {}}
    )


def check_knobs(declared: Any) -> None:
    """Refuse a value that its knob does not accept."""
    for each in fields(declared):
        value, accepts = getattr(declared, each.name), each.metadata.get("accepts")
        if accepts is not None and not accepts.test(value):
            raise Refused(
                f"{type(declared).__name__}.{each.name} is {value!r}; accepted: {accepts.words}"
            )
