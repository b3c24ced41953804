"""What a command works on: the settings in force, the lake they name, and the declared tables that were asked for."""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import click

from lakehouse.core.declaration.table import Table
from lakehouse.core.errors import LakehouseError, Refused
from lakehouse.core.settings import Settings, parse_settings
from lakehouse.core.text import nearest_words
from lakehouse.engine.declared_tables import declared_tables
from lakehouse.engine.delta_log import garbage_uncollected
from lakehouse.engine.lake import Lake, open_lake
from lakehouse.runtime.checkout import ROOT

_READERS = 8

type_of_found = TypeVar("type_of_found")


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeContext:
    """A lake and its declared tables, inputs before what reads them."""

    lake: Lake
    tables: Mapping[str, Table]

    def choose(self, wanted: Sequence[str]) -> list[Table]:
        """The tables of these keys, each once, all of them for none.

        Raises:
            Refused: a key that is not declared; the text names those that are near.
        """
        unknown = [key for key in wanted if key not in self.tables]
        if unknown:
            raise Refused(f"table {unknown[0]!r} is not declared; {nearest(unknown[0], self.tables)}")
        return [self.tables[key] for key in dict.fromkeys(wanted or self.tables)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found(Generic[type_of_found]):
    """What was found out of one table, or the error in the way; both `None`: there is no table yet."""

    table: Table
    value: type_of_found | None = None
    error: LakehouseError | None = None


def settings_in_force() -> Settings:
    """The settings that the environment gives; relative folders start at the project."""
    return parse_settings(os.environ, base=ROOT)


def open_declared() -> LakeContext:
    """The lake of the settings in force, and the tables of its package."""
    settings = settings_in_force()
    return LakeContext(lake=open_lake(settings), tables=declared_tables(settings))


def look_at_each(tables: Sequence[Table], look: Callable[[Table], type_of_found | None]) -> list[Found[type_of_found]]:
    """What `look` finds of each table, in order; the error of one does not hide the others."""

    def one(table: Table) -> Found[type_of_found]:
        try:
            return Found(table=table, value=look(table))
        except LakehouseError as error:
            return Found(table=table, error=error)

    with garbage_uncollected(), ThreadPoolExecutor(max_workers=_READERS) as readers:
        return list(readers.map(one, tables))


def nearest(word: str, known: Mapping[str, Any]) -> str:
    """The end of a refusal: the names nearest to `word`, or all of them where none is near."""
    names = {name.split("/")[-1]: name for name in known} | {name: name for name in known}
    near = list(dict.fromkeys(names[match] for match in nearest_words(word, names, most=5)))
    return f"did you mean {' or '.join(near[:3])}?" if near else f"declared: {', '.join(known) or 'none'}"


def complete_table(_context: click.Context, _parameter: click.Parameter, typed: str) -> list[str]:
    """The keys that a shell may complete `typed` to."""
    try:
        return [key for key in open_declared().tables if key.startswith(typed)]
    except LakehouseError:
        return []
