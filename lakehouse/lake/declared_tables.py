"""The tables of a lake: from the tables package, the file of adopted tables, and `maintain`.

`maintain` adds upkeep to tables that another Dagster project writes. Each call has one record. The
call's observation sensor writes the record when its code is loaded, and then once a day. A record
that was not written for 30 days is no longer in force, and the next sensor that writes any record
deletes it.
"""

import importlib
import json
import pkgutil
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from graphlib import TopologicalSorter
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any

from lakehouse.base.errors import Refused
from lakehouse.base.installation import is_installed
from lakehouse.base.paths import name_below
from lakehouse.base.settings import NO_TABLES, Settings
from lakehouse.base.text import DAY_MS
from lakehouse.declare.adopted import (
    MAINTAINED,
    maintained_document,
    parse_adopted,
    parse_maintained,
)
from lakehouse.declare.prices import DEFAULT_PRICES, PriceBook, parse_price_book
from lakehouse.declare.table import Table, folders_above
from lakehouse.lake.lake import Lake
from lakehouse.store import Store, StoredFile, real_address


def load_price_book(settings: Settings) -> PriceBook:
    """The packaged price book. Prices in the user's file, if there is one, override its prices.

    Raises:
        Refused: the user's file cannot be read, or is invalid.
    """
    text = _text_of(settings.prices, "LAKEHOUSE_PRICES")
    try:
        own = None if text is None else tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Refused(f"{settings.prices} is not TOML: {error}. Correct the file") from error
    return parse_price_book(_packaged_prices(), own, name=str(settings.prices))


def with_own_prices(tables: dict[str, Table], settings: Settings) -> dict[str, Table]:
    """The tables. If the user has a price file, tables with the default prices get its prices."""
    if not settings.prices.exists():
        return tables
    prices = load_price_book(settings).prices
    defaults = {key: table for key, table in tables.items() if table.prices == DEFAULT_PRICES}
    return tables | {key: replace(table, prices=prices) for key, table in defaults.items()}


@cache
def _packaged_prices() -> dict[str, Any]:
    file = files("lakehouse.lake").joinpath("prices.toml")
    return tomllib.loads(file.read_text(encoding="utf-8"))


def _text_of(path: Path, setting: str) -> str | None:
    """The text of the file that a setting names; `None` if there is no file."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(
            f"{path}, which {setting} names, cannot be read ({error}). Use a file in UTF-8."
        ) from error


_IN_FORCE_MS = 30 * DAY_MS


class MaintainedRecord:
    """The record of one call of `maintain`. `name` begins the names of the call's sensors."""

    def __init__(self, lake: Lake, tables: Sequence[Table], *, name: str) -> None:
        home = str(lake.settings.home)
        document = maintained_document(tables, home=home)
        self._store = lake.store
        # Projects that share a lake may use the same name.
        self._name = f"{MAINTAINED}/{name}-{sha256(home.encode()).hexdigest()[:8]}.json"
        self._content = json.dumps(document, indent=1).encode()
        self._written_ms = -DAY_MS

    def confirm(self, now_ms: int) -> None:
        """Writes the record, unless this process did so in the last day.

        After a write, all records that are no longer in force are deleted.
        """
        if 0 <= now_ms - self._written_ms < DAY_MS:
            return
        self._store.put(self._name, self._content)
        self._written_ms = now_ms
        records = self._store.list(MAINTAINED)
        self._store.delete([each.name for each in records if not _is_in_force(each, now_ms)])


def maintained_tables(store: Store, *, now_ms: int) -> dict[str, Table]:
    """The tables in a lake's records, by key. Of two records with the same key, the newer counts.

    Raises:
        Refused: a record is not JSON, or has a knob or a value that this version does not accept.
    """
    records = [each for each in store.list(MAINTAINED) if _is_in_force(each, now_ms)]
    tables = dict[str, Table]()
    for record in sorted(records, key=lambda each: each.modified_ms):
        try:
            document = json.loads(store.read(record.name))
        except FileNotFoundError:  # a sensor has just deleted it
            continue
        except ValueError as error:
            raise Refused(
                f"{record.name} is not JSON ({error}). Delete it; the project's observation "
                "sensor writes it again once its code location is reloaded"
            ) from error
        tables |= parse_maintained(document, name=record.name)
    return tables


def _is_in_force(record: StoredFile, now_ms: int) -> bool:
    return now_ms - record.modified_ms < _IN_FORCE_MS


def declared_tables(settings: Settings) -> dict[str, Table]:
    """All tables by key: declared tables, each after its inputs, then adopted tables.

    Raises:
        Refused: a module or the file of adopted tables cannot be read or is invalid, a key is both
            declared and adopted, or a check of adopted tables fails (`checked`).
    """
    # The demo's tables import PySpark. Without it, only adopted tables can be maintained.
    is_demo_without_spark = settings.tables == "lakehouse.tables" and not is_installed("pyspark")
    has_package = settings.tables != NO_TABLES and not is_demo_without_spark
    declared = module_tables(table_modules(settings.tables)) if has_package else {}
    adopted = adopted_tables(settings)
    shared_keys = [key for key in adopted if key in declared]
    if shared_keys:
        raise Refused(
            f"{settings.adopted}: {shared_keys[0]} is also declared in {settings.tables}. "
            "Use another key."
        )
    try:
        tables = checked({**declared, **adopted}, settings)
    except Refused as error:
        raise Refused(
            f"{error} (adopted tables are in {settings.adopted} or {settings.tables})"
        ) from error
    return with_own_prices(tables, settings)


def address_of(table: Table, settings: Settings) -> str:
    """The address of a table: the declared address if it is adopted, else a folder of the lake."""
    return table.adopted.uri if table.adopted else f"{settings.root}/{table.key}"


def checked(tables: dict[str, Table], settings: Settings) -> dict[str, Table]:
    """Returns `tables` after checking that adopted tables share no files with other tables.

    Raises:
        Refused: archived rows would leave S3 for this machine's disk; two adopted tables have the
            same address; one is in the folder of another, so that a vacuum of the outer table would
            delete files of the inner table; or an adopted table overlaps with the lake, but is not
            in the folder that its key names.
    """
    addresses = {
        key: real_address(table.adopted.uri) for key, table in tables.items() if table.adopted
    }
    if not addresses:
        return tables
    root = real_address(settings.root)
    key_at = {address: key for key, address in addresses.items()}
    for key, address in addresses.items():
        if tables[key].archive is not None and address.startswith("s3:") != settings.on_s3:
            raise Refused(
                f"{key} is at {address}, and its archive would be in {settings.root}. Set"
                " LAKEHOUSE_ROOT so that both are on S3, or both on a disk"
            )
        overlaps = address == root or name_below(address, root) or name_below(root, address)
        if overlaps and address != f"{root}/{key}":
            raise Refused(
                f"adopted table {key} is at {address}, in the lake {root}. Either use the table's"
                " path below the lake as its key, or adopt a table outside the lake."
            )
        if key_at[address] != key:
            raise Refused(
                f"adopted tables {key} and {key_at[address]} are both at {address}. Use one"
                " key per table."
            )
        outer = [key_at[folder] for folder in folders_above(address) if folder in key_at]
        if outer:
            raise Refused(
                f"adopted table {key} is at {address}, in the folder of the table {outer[0]}. Adopt"
                " only one of the two tables, or move one of them to another folder."
            )
    return tables


def adopted_tables(settings: Settings) -> dict[str, Table]:
    """The tables in the file of adopted tables, by key; empty if there is no file."""
    text = _text_of(settings.adopted, "LAKEHOUSE_ADOPTED")
    return {} if text is None else parse_adopted(text, name=str(settings.adopted))


def other_adopted(known: Iterable[Table], settings: Settings) -> Iterable[Table]:
    """The tables in the file of adopted tables that are not `known`.

    A vacuum needs these tables, because it keeps the files that they read.

    Raises:
        Refused: the file cannot be read, or one of its tables has the same key as a known table or
            shares files with a known table.
    """
    by_key = {table.key: table for table in known}
    try:
        tables = with_maintained(adopted_tables(settings), by_key, settings)
    except Refused as error:
        raise Refused(f"{error} (from {settings.adopted}, or from maintain)") from error
    return [table for key, table in tables.items() if key not in by_key]


def with_maintained(
    declared: Mapping[str, Table], maintained: Mapping[str, Table], settings: Settings
) -> dict[str, Table]:
    """The declared tables and the tables of `maintain`.

    A declared table at the address of a table of `maintain` is omitted.

    Raises:
        Refused: both use the same key for different tables, or two tables share files.
    """
    if not maintained:
        return {**declared}
    addresses = {real_address(address_of(table, settings)) for table in maintained.values()}
    others = dict[str, Table]()
    for key, table in declared.items():
        address = address_of(table, settings)
        if real_address(address) in addresses:
            continue
        if key in maintained:
            raise Refused(
                f"maintain already uses the key {key}, for "
                f"{address_of(maintained[key], settings)}; {settings.adopted} or {settings.tables} "
                f"uses the same key for {address}. Use another key"
            )
        others[key] = table
    return checked({**others, **with_own_prices(dict(maintained), settings)}, settings)


def table_modules(package: str) -> Iterator[ModuleType]:
    """The tables package and all modules below it."""
    root = _import(package)
    yield root
    folders = getattr(root, "__path__", [])
    for module_info in pkgutil.walk_packages(folders, prefix=f"{package}."):
        yield _import(module_info.name)


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as error:
        package = name.partition(".")[0]
        if isinstance(error, ModuleNotFoundError) and error.name == package:
            raise Refused(
                f"LAKEHOUSE_TABLES is {name}, but Python finds no package {package}. Either run"
                f" the command in the folder that contains {package}/, or add that folder to"
                " PYTHONPATH, or install the package"
            ) from error
        raise Refused(
            f"tables module {name} cannot be imported: {type(error).__name__}: {error}"
            " (LAKEHOUSE_TABLES names the package of tables)"
        ) from error


def module_tables(modules: Iterable[ModuleType]) -> dict[str, Table]:
    """Every `Table` at the top level of the modules, by key, each after its inputs.

    Raises:
        Refused: two tables have the same key, or an input is in no module.
    """
    tables: dict[str, Table] = {}
    for module in modules:
        for value in vars(module).values():
            if isinstance(value, Table) and tables.setdefault(value.key, value) is not value:
                raise Refused(
                    f"Table.key {value.key!r} is declared twice, the second time in"
                    f" {module.__name__}. Use another key."
                )
    inputs = dict[str, list[str]]()
    for key, table in sorted(tables.items()):
        _check_inputs(table, tables)
        inputs[key] = [source.key for source in table.inputs]
    return {key: tables[key] for key in TopologicalSorter(inputs).static_order()}


def _check_inputs(table: Table, tables: Mapping[str, Table]) -> None:
    """Raises `Refused` unless the inputs of a table are among the tables."""
    for source in table.inputs:
        if tables.get(source.key) is not source:
            problem = "is in no module of the tables package. Import its module there."
            if source.key in tables:
                problem = "is not the table declared with that key. Declare each table once."
            raise Refused(f"Table {table.key}: its input {source.key} {problem}")
