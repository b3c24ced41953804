"""Opens settings, lake and tables for commands, and collects results and errors per table."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import LakehouseError, Refused
from lakehouse.base.frozen import frozen
from lakehouse.base.paths import is_address, parse_address
from lakehouse.base.settings import NO_TABLES, Settings
from lakehouse.base.text import nearest_words
from lakehouse.cli.output import tell
from lakehouse.cli.settings import settings_in_force
from lakehouse.declare.adopted import adopted_table
from lakehouse.declare.table import Table, key_of
from lakehouse.lake.declared_tables import (
    address_of,
    declared_tables,
    maintained_tables,
    with_maintained,
)
from lakehouse.lake.lake import Found, Lake, open_lake
from lakehouse.store import real_address


@frozen
class LakeContext:
    """A lake and its tables by key, inputs first.

    `tables` are the declared tables, and the undeclared tables that the command line names by
    address.
    """

    lake: Lake
    tables: Mapping[str, Table]

    def choose(self, names: Sequence[str]) -> list[Table]:
        """The tables with these keys or addresses, each once; all tables if `names` is empty.

        Raises:
            Refused: a table is not declared; the message says how to declare or name it.
        """
        if not names:
            return list(self.tables.values())
        keys = {table.asset_key: key for key, table in self.tables.items()}
        keys |= {key: key for key in self.tables}
        if any(map(is_address, names)):
            keys |= keys_by_address(self.tables, self.lake.settings)
        chosen = dict[str, Table]()
        for name in names:
            key = keys.get(resolve_address(name) if is_address(name) else name)
            if key is None:
                raise _unknown_table(name, self.tables)
            chosen[key] = self.tables[key]
        return list(chosen.values())


def open_table(key: str) -> tuple[LakeContext, Table]:
    """The lake and the declared table of this key."""
    context = open_declared()
    return context, context.choose([key])[0]


def open_landed(key: str, *, command: str) -> tuple[LakeContext, Table]:
    """Like `open_table`, but refuses a table that is not loaded from landed files."""
    context, table = open_table(key)
    if table.source is None:
        raise Refused(
            f"{command} {table.key}: it is derived from other tables. Use a table that is loaded "
            "from landed files"
        )
    return context, table


def not_written(table: Table, *, operation: str) -> Refused:
    """The error for a table that is declared but does not exist."""
    sentence = f"does not exist yet. Write it first: lakehouse materialize {table.key}"
    if table.adopted:
        sentence = f"is not at {table.adopted.uri}. If it has moved, declare its new address"
    return Refused(f"{operation}: the table is declared but {sentence}")


def open_declared() -> LakeContext:
    """The lake of the settings in force, and its declared tables."""
    return open_tables(())[0]


def open_tables(names: Sequence[str]) -> tuple[LakeContext, list[Table]]:
    """The lake, and the tables with these keys or addresses (a folder, `s3://…`); by default all.

    An undeclared Delta table, which an address can name, gets a key as if it were adopted. Any
    other name that is not the key of a declared table is refused.
    """
    settings = settings_in_force()
    maintained = maintained_tables(open_lake(settings).store, now_ms=now_ms())
    if maintained and not os.environ.get("LAKEHOUSE_TABLES"):
        settings = replace(settings, tables=NO_TABLES)
    tables = with_maintained(declared_tables(settings), maintained, settings)
    known_addresses = keys_by_address(tables, settings)
    for name in filter(is_address, names):
        address = parse_address(name, base=os.getcwd())
        key = known_addresses.setdefault(real_address(address), key_of(address, tables))
        tables.setdefault(key, adopted_table(key, address))
    context = LakeContext(lake=open_lake(settings, tables=tables.values()), tables=tables)
    return context, context.choose(names)


def _unknown_table(name: str, tables: Mapping[str, Table]) -> Refused:
    if is_address(name):
        hint = f"adopt it first: lakehouse adopt {name}"
    elif Path(name).is_dir():
        hint = f"did you mean the folder ./{name}?"
    else:
        hint = nearest(name, tables)
        if not hint.startswith("did"):
            hint += "; the address of a table begins with ./, / or s3://"
    return Refused(f"table {name!r} is not declared; {hint}")


def resolve_address(address: str) -> str:
    """The absolute form of an address in the working folder, with symbolic links resolved."""
    return real_address(parse_address(address, base=os.getcwd()))


def print_errors(readings: Sequence[Found[Any]]) -> int:
    """Prints each distinct error once; returns the exit code of the most severe one, or 0."""
    errors = [each.error for each in readings if each.error is not None]
    for text in dict.fromkeys(f"{type(error).__name__}: {error}" for error in errors):
        tell(text)
    # The more severe an error, the smaller is its exit code: `Broken`, `Refused`, `Transient`.
    return min((error.exit_code for error in errors), default=0)


def keys_by_address(tables: Mapping[str, Table], settings: Settings) -> dict[str, str]:
    """Maps the address of each table, with symbolic links resolved, to the table's key."""
    return {real_address(address_of(table, settings)): key for key, table in tables.items()}


def cell_of(reading: Found[Any]) -> str:
    """The text of a cell for a table without a value; `print_errors` prints the error itself."""
    if reading.error is None:
        return reading.sentence
    return f"{type(reading.error).__name__}: see standard error"


def nearest(word: str, known: Mapping[str, Any]) -> str:
    """The end of an error message: asks whether a similar key was meant, or lists all keys."""
    # `word` is compared with each key, and with each key's name without the layer.
    keys = {key.split("/")[-1]: key for key in known} | {key: key for key in known}
    similar = list(dict.fromkeys(keys[match] for match in nearest_words(word, keys, most=5)))
    if similar:
        return f"did you mean {' or '.join(similar[:3])}?"
    return f"declared: {', '.join(known) or 'none'}"


def complete_table(
    _context: click.Context, _parameter: click.Parameter, typed: str
) -> list[CompletionItem]:
    """Shell completion: folders for an address, otherwise the declared keys; empty after errors."""
    if is_address(typed):
        return [CompletionItem(typed, type="dir")]
    try:
        return [CompletionItem(key) for key in open_declared().tables if key.startswith(typed)]
    except LakehouseError:
        return []


table_argument = click.argument("table", shell_complete=complete_table)
tables_argument = click.argument(
    "tables", metavar="[TABLE|ADDRESS]...", nargs=-1, shell_complete=complete_table
)
