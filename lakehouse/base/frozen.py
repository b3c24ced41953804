"""The classes of values, which never change."""

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

Value = TypeVar("Value")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def frozen(cls: type[Value]) -> type[Value]:
    """Makes a dataclass whose fields are set once, by keyword.

    A default of `{}` is an empty dictionary of each value's own.
    """
    for name in cls.__annotations__:
        if vars(cls).get(name) == {}:
            setattr(cls, name, field(default_factory=dict))
    return dataclass(frozen=True, slots=True, kw_only=True)(cls)
