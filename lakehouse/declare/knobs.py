"""Knobs: fields of a declaration with a default, accepted values, and a line of documentation."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from math import inf
from typing import Any, TypeVar, cast, get_args

from lakehouse.base.errors import Refused
from lakehouse.base.text import either, nearest_words

Declared = TypeVar("Declared")


@dataclass(frozen=True, slots=True)
class Accepts:
    """The values that a knob accepts, as text for people and as a test."""

    words: str
    test: Callable[[Any], bool]


def whole(least: int, *, or_zero: bool = False) -> Accepts:
    """A whole number of at least `least`. With `or_zero`, also 0, which means off or a default."""

    def test(value: Any) -> bool:
        if not isinstance(value, int) or isinstance(value, bool):
            return False
        return value >= least or (or_zero and value == 0)

    return Accepts(f"a whole number, {least} or more{', or 0' if or_zero else ''}", test)


def one_of(*values: str) -> Accepts:
    """One of these words."""
    return Accepts(either([f'"{value}"' for value in values]), lambda value: value in values)


def instance_of(kinds: Any) -> Accepts:
    """A value of one of the classes of a union."""
    names = [kind.__name__ for kind in get_args(kinds)]
    return Accepts(either(names), lambda value: isinstance(value, kinds))


def or_none(accepts: Accepts) -> Accepts:
    """The same values, or `None`."""
    return Accepts(f"{accepts.words}, or None", lambda value: value is None or accepts.test(value))


def is_number(value: object) -> bool:
    """Whether the value is a number; True and False are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


AMOUNT = Accepts("a number, 0 or more", lambda value: is_number(value) and 0 <= value < inf)
YES_OR_NO = Accepts("True or False", lambda value: isinstance(value, bool))
ANY_TEXT = Accepts("a string", lambda value: isinstance(value, str))
TEXT = Accepts("a string that is not empty", lambda value: isinstance(value, str) and bool(value))
SHARE_OR_OFF = Accepts(
    "a number from 0 (off) to 1", lambda value: is_number(value) and 0 <= value <= 1
)


def knob(
    default: Any, accepts: Accepts, line: str, *, layers: Mapping[str, Any] | None = None
) -> Any:
    """A field of a declaration. `line` documents it.

    `layers` maps layers to the defaults that replace a value of 0 (`policy_for`).
    """
    metadata = {"accepts": accepts, "line": line, "layers": layers or {}}
    return field(default=default, metadata=metadata)


def check_knobs(declared: Any) -> None:
    """Refuses a value that its knob does not accept. Fields that are not knobs are not checked."""
    for each in fields(declared):
        value = getattr(declared, each.name)
        accepts = each.metadata.get("accepts")
        if accepts is not None and not accepts.test(value):
            name = f"{type(declared).__name__}.{each.name}"
            raise Refused(f"{name} is {value!r}. Use {accepts.words}.")


def changed_fields(declared: Any) -> dict[str, Any]:
    """The fields of a declaration that differ from their defaults."""
    changed = dict[str, Any]()
    for each in fields(declared):
        default = each.default
        if each.default_factory is not MISSING:
            default = each.default_factory()
        value = getattr(declared, each.name)
        if value != default:
            changed[each.name] = value
    return changed


def declared_as(kind: type[Declared], entry: Any) -> Declared:
    """The declaration of this class from a TOML table or a YAML mapping with a key per knob.

    Raises:
        Refused: the entry is not a mapping, has an unknown knob or a value that the declaration
            refuses, or lacks a knob without a default.
    """
    subject = kind.__name__.lower()
    knobs = fields(cast("Any", kind))
    names = [each.name for each in knobs]
    if not isinstance(entry, Mapping):
        raise Refused(f"{subject} is {entry!r}. Use a table of {', '.join(names)}.")
    values = cast("Mapping[str, Any]", entry)
    unknown = [name for name in values if name not in names]
    if unknown:
        near = nearest_words(unknown[0], names, most=1)
        raise Refused(f"{subject} has {unknown[0]!r}. Use {', '.join(near or names)}.")
    required = [each.name for each in knobs if each.default is MISSING]
    missing = [name for name in required if name not in values]
    if missing:
        raise Refused(f"{subject} lacks {missing[0]!r}. Use {' and '.join(required)}.")
    return kind(**values)
