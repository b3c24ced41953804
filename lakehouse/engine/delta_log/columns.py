"""Hundreds of thousands of actions held column by column, and values made from such columns.

An object for each action, and Python code for each object, would take most of the time that reading a large log takes.
"""

import gc
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import compress, repeat
from typing import TypeVar

from lakehouse.engine.delta_log.actions import AddedFile, RemovedFile
from lakehouse.engine.delta_log.fields import type_of_pairs

type_of_made = TypeVar("type_of_made")


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedColumns:
    """`add` actions, a list per field; the partition of the n-th, by physical column names, is `pairs[places[n]]`."""

    path: Sequence[str]
    vector: Sequence[str | None]
    size_bytes: Sequence[int]
    modified_ms: Sequence[int]
    places: Sequence[int]
    pairs: Sequence[type_of_pairs]
    row_count: Sequence[int | None]
    deleted_row_count: Sequence[int]

    def where(self, kept: Sequence[bool]) -> "AddedColumns":
        """Actions for which `kept` is true, with no partition but theirs: the others may be of a partitioning that is gone."""
        if all(kept):
            return self
        places = list(compress(self.places, kept))
        numbers = {place: number for number, place in enumerate(dict.fromkeys(places))}
        return AddedColumns(
            path=list(compress(self.path, kept)),
            vector=list(compress(self.vector, kept)),
            size_bytes=list(compress(self.size_bytes, kept)),
            modified_ms=list(compress(self.modified_ms, kept)),
            places=[numbers[place] for place in places],
            pairs=[self.pairs[place] for place in numbers],
            row_count=list(compress(self.row_count, kept)),
            deleted_row_count=list(compress(self.deleted_row_count, kept)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedColumns:
    """`remove` actions, a list per field that a tombstone needs."""

    path: Sequence[str]
    vector: Sequence[str | None]
    deleted_ms: Sequence[int | None]
    size_bytes: Sequence[int | None]


def added_columns(adds: Sequence[AddedFile]) -> AddedColumns:
    """The same actions, by column."""
    return AddedColumns(
        path=[add.path for add in adds],
        vector=[add.vector for add in adds],
        size_bytes=[add.size_bytes for add in adds],
        modified_ms=[add.modified_ms for add in adds],
        places=range(len(adds)),
        pairs=[add.pairs for add in adds],
        row_count=[add.row_count for add in adds],
        deleted_row_count=[add.deleted_row_count for add in adds],
    )


def removed_columns(removes: Sequence[RemovedFile]) -> RemovedColumns:
    """The same actions, by column."""
    return RemovedColumns(
        path=[remove.path for remove in removes],
        vector=[remove.vector for remove in removes],
        deleted_ms=[remove.deleted_ms for remove in removes],
        size_bytes=[remove.size_bytes for remove in removes],
    )


def made_of_columns(kind: type[type_of_made], count: int, **columns: Iterable[object]) -> list[type_of_made]:
    """`count` values of a dataclass with slots and without `__post_init__`, each field from its column, all of them given.

    It is what `[kind(a=a, b=b) for a, b in zip(...)]` gives, in a third of its time: a frozen dataclass sets every field by a call.
    """
    assert columns.keys() == set(kind.__slots__) and not hasattr(kind, "__post_init__")  # type: ignore[attr-defined]
    made = list(map(object.__new__, repeat(kind, count)))
    for name, column in columns.items():
        deque(map(getattr(kind, name).__set__, made, column), maxlen=0)
    return made


@contextmanager
def garbage_uncollected() -> Iterator[None]:
    """Python's collector rests meanwhile: it would look again and again through a million values that are all still needed."""
    working = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if working:
            gc.enable()
