"""Knobs: fields of a declaration with a default, accepted values, and a line of documentation."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from functools import cache
from math import inf
from types import NoneType
from typing import Any, Literal, TypeVar, cast, get_args, get_origin

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


def is_number(value: object) -> bool:
    """Whether the value is a number; True and False are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


AMOUNT = Accepts("a number, 0 or more", lambda value: is_number(value) and 0 <= value < inf)
TEXT = Accepts("a string that is not empty", lambda value: isinstance(value, str) and bool(value))
SHARE_OR_OFF = Accepts(
    "a number from 0 (off) to 1", lambda value: is_number(value) and 0 <= value <= 1
)


def knob(default: Any, line: str, accepts: Accepts | None = None) -> Any:
    """A field of a declaration. `line` documents it. Without `accepts`, its type decides."""
    return field(default=default, metadata={"accepts": accepts, "line": line})


@cache
def accepted(knob: Field[Any]) -> Accepts | None:
    """The values that a field accepts; `None` if it accepts any.

    Without `accepts`, these are the values of its type, if that is a string, a boolean, a
    `Literal`, a declaration, or a union of declarations and `None`.
    """
    if accepts := knob.metadata.get("accepts"):
        return accepts
    kind: Any = knob.type
    choices = get_args(kind) or (kind,)
    if get_origin(kind) is Literal:
        words = [repr(choice).replace("'", '"') for choice in choices]
        return Accepts(either(words), lambda value: value in choices)
    if kind is bool:
        return Accepts("True or False", lambda value: isinstance(value, bool))
    if kind is str:
        return Accepts("a string", lambda value: isinstance(value, str))
    if all(is_dataclass(choice) or choice is NoneType for choice in choices):
        names = ["None" if choice is NoneType else choice.__name__ for choice in choices]
        return Accepts(either(names), lambda value: isinstance(value, choices))
    return None


def check_knobs(declared: Any, subject: str = "") -> None:
    """Refuses a value that its field does not accept. Messages begin with `subject`."""
    for each in fields(declared):
        value = getattr(declared, each.name)
        accepts = accepted(each)
        if accepts is not None and not accepts.test(value):
            name = f"{subject or f'{type(declared).__name__}.'}{each.name}"
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


def check_words(subject: str, words: Iterable[str], known: Sequence[str], hint: str = "") -> None:
    """Refuses a word that is not known."""
    for word in words:
        if word not in known:
            near = nearest_words(word, known, most=1)
            raise Refused(f"{subject} has {word!r}. Use {', '.join(near or known)}{hint}.")


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
    check_words(subject, values, names)
    required = [each.name for each in knobs if each.default is MISSING]
    missing = [name for name in required if name not in values]
    if missing:
        raise Refused(f"{subject} lacks {missing[0]!r}. Use {' and '.join(required)}.")
    return kind(**values)
