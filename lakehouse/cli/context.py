"""Opens settings, lake and tables for commands, and collects results and errors per table."""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from lakehouse.cli.output import show, tell
from lakehouse.core.adoption.adopted_file import adopted_table
from lakehouse.core.adoption.maintained import with_project_defaults
from lakehouse.core.declaration.adopted import Adopted, is_address, key_of, parse_address
from lakehouse.core.declaration.table import Table
from lakehouse.core.declaration.undeclared_tables import undeclared_sentence
from lakehouse.core.errors import Broken, LakehouseError, Refused, Transient
from lakehouse.core.settings import NO_TABLES, Settings, parse_settings
from lakehouse.core.text import count_of, first_names, nearest_words
from lakehouse.engine.adoption.find_tables import undeclared_tables
from lakehouse.engine.adoption.maintained import MAINTAINED, maintained_tables
from lakehouse.engine.clock import now_ms
from lakehouse.engine.declared_tables import address_of, declared_tables, with_maintained
from lakehouse.engine.each_table import Found
from lakehouse.engine.lake import Lake, open_lake
from lakehouse.engine.store import real_address
from lakehouse.runtime.checkout import ROOT

# Where a Dagster project that calls `maintain` records its tables by default.
_RECORDS = f".lakehouse/lake/{MAINTAINED}"
_MOST_ADDRESSES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeContext:
    """A lake and its declared tables, inputs first.

    `by_address` has the keys of the undeclared tables that the command line names by address.
    """

    lake: Lake
    tables: Mapping[str, Table]
    by_address: frozenset[str] = frozenset()

    def choose(self, wanted: Sequence[str]) -> list[Table]:
        """The tables with these keys or addresses, each once; all tables if `wanted` is empty.

        Raises:
            Refused: a table is not declared; the message says how to declare or name it.
        """
        if any(map(is_address, wanted)):
            keys = keys_by_address(self.tables, self.lake.settings)
            wanted = [
                keys.get(resolve_address(each), each) if is_address(each) else each
                for each in wanted
            ]
        unknown = [key for key in wanted if key not in self.tables]
        if unknown:
            adopt_first = f"adopt it first: lakehouse adopt {unknown[0]}"
            hint = adopt_first if is_address(unknown[0]) else nearest(unknown[0], self.tables)
            raise Refused(f"table {unknown[0]!r} is not declared; {hint}")
        return [self.tables[key] for key in dict.fromkeys(wanted or self.tables)]

    def choose_landed(self, wanted: Sequence[str], *, command: str) -> list[Table]:
        """The wanted tables that are loaded from landed files; all such tables by default.

        Raises:
            Refused: a wanted table is not declared, or is not loaded from landed files.
        """
        chosen = self.choose(wanted)
        if wanted and (derived := [table.key for table in chosen if table.source is None]):
            raise Refused(
                f"{command} {derived[0]}: it is derived from other tables. Use a table that is "
                "loaded from landed files"
            )
        return [table for table in chosen if table.source]


def open_table(key: str) -> tuple[LakeContext, Table]:
    """The lake and the declared table of this key."""
    opened = open_declared()
    return opened, opened.choose([key])[0]


def open_landed(key: str, *, command: str) -> tuple[LakeContext, Table]:
    """Like `open_table`, but refuses a table that is not loaded from landed files."""
    opened = open_declared()
    return opened, opened.choose_landed([key], command=command)[0]


def not_written(table: str, *, operation: str) -> Refused:
    """The error for a table that is declared but was never written."""
    return Refused(
        f"{operation}: the table is declared but does not exist yet. "
        f"Write it first: lakehouse materialize {table}"
    )


def settings_in_force() -> Settings:
    """The settings in the environment. Relative folders are resolved against the project's folder.

    That is the nearest folder, from the working folder upwards, in which `maintain` has recorded
    tables, or else this checkout. In a project with recorded tables, the demo is off by default.
    """
    here = Path.cwd()
    base = next((each for each in (here, *here.parents) if (each / _RECORDS).is_dir()), ROOT)
    settings = parse_settings(os.environ, base=base)
    if not settings.on_s3 and Path(settings.root, MAINTAINED).is_dir():
        settings = parse_settings(with_project_defaults(os.environ), base=base)
    _find_package_here(settings.tables.partition(".")[0])
    return settings


def _find_package_here(package: str) -> None:
    """Adds the working folder to Python's path if only this folder contains the package."""
    folder = Path.cwd()
    is_here = (folder / package).is_dir() or (folder / f"{package}.py").is_file()
    if is_here and find_spec(package) is None:
        sys.path.append(str(folder))
        paths = filter(None, (os.environ.get("PYTHONPATH"), str(folder)))
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)


def open_declared() -> LakeContext:
    """The lake of the settings in force, and its declared tables."""
    return open_tables(())[0]


def open_tables(wanted: Sequence[str]) -> tuple[LakeContext, list[Table]]:
    """The lake, and the tables with these keys or addresses (a folder, `s3://…`); by default all.

    The address may be that of an undeclared Delta table, which gets a key as if it were adopted.
    """
    settings = settings_in_force()
    maintained = maintained_tables(open_lake(settings).store, now_ms=now_ms())
    if maintained and not os.environ.get("LAKEHOUSE_TABLES"):
        settings = replace(settings, tables=NO_TABLES)
    tables = with_maintained(declared_tables(settings), maintained, settings)
    declared = {*tables}
    keys_of_addresses = keys_by_address(tables, settings)
    keys = list[str]()
    for word in wanted:
        if is_address(word):
            address = parse_address(word, base=os.getcwd())
            new_key = key_of(address, tables)
            key = keys_of_addresses.setdefault(real_address(address), new_key)
            tables.setdefault(key, adopted_table(key, address))
            keys.append(key)
        elif word in tables:
            keys.append(word)
        else:
            near = (
                f"did you mean the folder ./{word}?"
                if Path(word).is_dir()
                else nearest(word, tables)
            )
            hint = (
                ""
                if near.startswith("did")
                else "; the address of a table begins with ./, / or s3://"
            )
            raise Refused(f"table {word!r} is not declared; {near}{hint}")
    opened = LakeContext(
        lake=open_lake(settings, tables=tables.values()),
        tables=tables,
        by_address=frozenset(tables.keys() - declared),
    )
    return opened, opened.choose(keys)


def resolve_address(address: str) -> str:
    """The absolute form of a typed address: symbolic links are followed.

    A relative folder is resolved against the working folder.
    """
    return real_address(parse_address(address, base=os.getcwd()))


def find_undeclared(opened: LakeContext, readings: Sequence[Found[Any]]) -> tuple[Table, ...]:
    """The undeclared tables in the lake, each as if it were adopted.

    If a reading failed with `Transient`, storage does not answer, and the result is empty.
    """
    if any(isinstance(each.error, Transient) for each in readings):
        return ()
    root = opened.lake.settings.root
    keys = undeclared_tables(opened.lake, opened.tables.values())
    return tuple(adopted_table(key, f"{root}/{key}") for key in keys)


def show_undeclared(undeclared: Sequence[Table]) -> None:
    """Prints one line that names these tables, and what to do about them."""
    if undeclared:
        show(undeclared_sentence([table.key for table in undeclared]), style="yellow")


def tell_errors(readings: Sequence[Found[Any]]) -> int:
    """Prints each distinct error once; returns the exit code of the most severe one, or 0."""
    tell_once(
        (each.table.key, f"{type(each.error).__name__}: {each.error}")
        for each in readings
        if each.error
    )
    return worst_code(each.error.exit_code for each in readings if each.error)


def keys_by_address(tables: Mapping[str, Table], settings: Settings) -> dict[str, str]:
    """Maps the address of each table, with symbolic links resolved, to the table's key."""
    return {real_address(address_of(table, settings)): key for key, table in tables.items()}


def tell_once(sentences: Iterable[tuple[str, str]]) -> None:
    """Prints messages to standard error. Those that differ only in the table's key are combined."""
    for first, others in _alike(sentences):
        alike = f" (the same for {count_of(len(others), 'other table')}: {', '.join(others)})"
        tell(f"{first}{alike if others else ''}")


def show_once(sentences: Iterable[tuple[str, str]]) -> None:
    """Like `tell_once`, but prints to standard output."""
    for first, others in _alike(sentences):
        alike = f" (the same for {count_of(len(others), 'other table')}: {first_names(others)})"
        show(f"{first}{alike if others else ''}")


def _alike(sentences: Iterable[tuple[str, str]]) -> Iterable[tuple[str, Sequence[str]]]:
    """Each distinct message, with the keys of the other tables to which it applies."""
    alike: dict[str, tuple[str, list[str]]] = {}
    for table, sentence in sentences:
        without_key = sentence.replace(table, "\0").replace(quote(table, safe=""), "\0")
        alike.setdefault(without_key, (sentence, []))[1].append(table)
    return [(first, tables[1:]) for first, tables in alike.values()]


def worst_code(codes: Iterable[int]) -> int:
    """The most severe of these exit codes: `Broken`, then `Refused`, then `Transient`, or 0."""
    given = {*codes}
    return next(
        (kind.exit_code for kind in (Broken, Refused, Transient) if kind.exit_code in given), 0
    )


def error_cell(kind: str) -> str:
    """The cell's text for a table whose error is printed to standard error."""
    return f"{kind}: see standard error"


def cell_of(reading: Found[Any]) -> str:
    """The cell's text for a table without a value; `tell_errors` prints the error itself."""
    return error_cell(type(reading.error).__name__) if reading.error else reading.sentence


def address_field(table: Table) -> dict[str, str]:
    """The field `uri` of an adopted table's document."""
    return {"uri": table.write.uri} if isinstance(table.write, Adopted) else {}


def show_addresses(tables: Iterable[Table]) -> None:
    """Prints the address of each adopted table, or, for more than four, how to list addresses."""
    adopted = [table for table in tables if isinstance(table.write, Adopted)]
    if len(adopted) > _MOST_ADDRESSES:
        show("to list the addresses of adopted tables: lakehouse tables")
        return
    for table in adopted:
        show(f"{table.key} is {address_field(table)['uri']}")


def nearest(word: str, known: Mapping[str, Any]) -> str:
    """The end of a refusal's message: the names similar to `word`, or all names."""
    names = {name.split("/")[-1]: name for name in known} | {name: name for name in known}
    near = list(dict.fromkeys(names[match] for match in nearest_words(word, names, most=5)))
    return (
        f"did you mean {' or '.join(near[:3])}?"
        if near
        else f"declared: {', '.join(known) or 'none'}"
    )


def complete_table(_context: click.Context, _parameter: click.Parameter, typed: str) -> list[str]:
    """The declared keys that begin with `typed`, for the shell; none if a setting is invalid."""
    try:
        return [key for key in open_declared().tables if key.startswith(typed)]
    except LakehouseError:
        return []
