"""The tables of a lake: from the tables package, the file of adopted tables, and `maintain`.

`maintain` adds upkeep to tables that another Dagster project writes.
"""

import importlib
import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType

from lakehouse.base.errors import Refused
from lakehouse.base.installation import is_installed
from lakehouse.base.settings import NO_TABLES, Settings
from lakehouse.declare.adopted import Adopted, folders_above, is_inside
from lakehouse.declare.adopted_file import parse_adopted
from lakehouse.declare.table import Table
from lakehouse.lake.price_book import with_own_prices
from lakehouse.store import real_address


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
    return table.write.uri if isinstance(table.write, Adopted) else f"{settings.root}/{table.key}"


def checked(tables: dict[str, Table], settings: Settings) -> dict[str, Table]:
    """Returns `tables` after checking that adopted tables share no files with other tables.

    Raises:
        Refused: archived rows would leave S3 for this machine's disk; two adopted tables have the
            same address; one is in the folder of another, so that a vacuum of the outer table would
            delete files of the inner table; or an adopted table overlaps with the lake, but is not
            in the folder that its key names.
    """
    addresses = {
        key: real_address(table.write.uri)
        for key, table in tables.items()
        if isinstance(table.write, Adopted)
    }
    if not addresses:
        return tables
    root = real_address(settings.root)
    for key, address in addresses.items():
        if tables[key].archive is not None and address.startswith("s3:") != settings.on_s3:
            raise Refused(
                f"{key} is at {address}, and its archive would be in {settings.root}. Set"
                " LAKEHOUSE_ROOT so that both are on S3, or both on a disk"
            )
        overlaps = address == root or is_inside(address, root) or is_inside(root, address)
        if overlaps and address != f"{root}/{key}":
            raise Refused(
                f"adopted table {key} is at {address}, in the lake {root}. Either use the table's"
                " path below the lake as its key, or adopt a table outside the lake."
            )
    key_at = {address: key for key, address in addresses.items()}
    for key, address in addresses.items():
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
    try:
        text = settings.adopted.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(
            f"{settings.adopted}, which LAKEHOUSE_ADOPTED names, cannot be read ({error}). Use a"
            " file in UTF-8."
        ) from error
    return parse_adopted(text, name=str(settings.adopted))


def other_adopted(known: Iterable[Table], settings: Settings) -> Iterable[Table]:
    """The tables in the file of adopted tables that are not `known`.

    A vacuum needs these tables, because it keeps the files that they read.

    Raises:
        Refused: the file cannot be read, or one of its tables has the same key as a known table or
            shares files with a known table.
    """
    by_key = {table.key: table for table in known}
    addresses = {real_address(address_of(table, settings)) for table in by_key.values()}
    others = {
        key: table
        for key, table in adopted_tables(settings).items()
        if real_address(address_of(table, settings)) not in addresses
    }
    shared_keys = [key for key in others if key in by_key]
    if shared_keys:
        key = shared_keys[0]
        raise Refused(
            f"{settings.adopted}: maintain already uses the key {key}, for "
            f"{address_of(by_key[key], settings)}. Use another key"
        )
    try:
        checked({**by_key, **others}, settings)
    except Refused as error:
        raise Refused(f"{error} (from {settings.adopted}, or from maintain)") from error
    return others.values()


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
    others = {
        key: table
        for key, table in declared.items()
        if real_address(address_of(table, settings)) not in addresses
    }
    shared_keys = [key for key in others if key in maintained]
    if shared_keys:
        key = shared_keys[0]
        raise Refused(
            f"maintain already uses the key {key}, for "
            f"{address_of(maintained[key], settings)}; {settings.adopted} or {settings.tables} "
            f"uses the same key for {address_of(others[key], settings)}. Use another key"
        )
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
    ordered: dict[str, Table] = {}
    for key in sorted(tables):
        _add_after_inputs(tables[key], tables=tables, ordered=ordered)
    return ordered


def _add_after_inputs(table: Table, *, tables: dict[str, Table], ordered: dict[str, Table]) -> None:
    """Adds a table to `ordered`, after all its inputs."""
    if table.key in ordered:
        return
    for source in table.inputs:
        if tables.get(source.key) is not source:
            if source.key in tables:
                problem = "is not the table declared with that key. Declare each table once."
            else:
                problem = "is in no module of the tables package. Import its module there."
            raise Refused(f"Table {table.key}: its input {source.key} {problem}")
        _add_after_inputs(source, tables=tables, ordered=ordered)
    ordered[table.key] = table
