"""The tables that a package declares, found by importing it by the name that the settings give, and those that were adopted."""

import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType

from lakehouse.core.adoption.adopted_file import parse_adopted
from lakehouse.core.declaration.table import Table, find_tables
from lakehouse.core.errors import Refused
from lakehouse.core.settings import Settings


def declared_tables(settings: Settings) -> dict[str, Table]:
    """Every declared table by key, inputs before what reads them; then those of the file of adopted ones.

    Raises:
        Refused: as for `table_modules`, `find_tables` and `parse_adopted`; or both have a table of one key.
    """
    declared, adopted = find_tables(table_modules(settings.tables)), adopted_tables(settings)
    if both := [key for key in adopted if key in declared]:
        raise Refused(f"{settings.adopted}: {both[0]} is declared in {settings.tables}, too; accepted: another key")
    return {**declared, **adopted}


def adopted_tables(settings: Settings) -> dict[str, Table]:
    """The tables of the file of adopted ones, by key; none where there is no file.

    Raises:
        Refused: as for `parse_adopted`; or the file cannot be read.
    """
    try:
        text = settings.adopted.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{settings.adopted} cannot be read ({error}); accepted: a file in UTF-8 (LAKEHOUSE_ADOPTED names it)") from error
    return parse_adopted(text, name=str(settings.adopted))


def table_modules(package: str) -> Iterator[ModuleType]:
    """The tables package and every module below it.

    Raises:
        Refused: one of them cannot be imported; its name and the reason are told.
    """
    root = _import(package)
    yield root
    for found in pkgutil.walk_packages(getattr(root, "__path__", []), prefix=f"{package}."):
        yield _import(found.name)


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise Refused(
            f"tables module {name} cannot be imported: {type(error).__name__}: {error} (LAKEHOUSE_TABLES names its package)"
        ) from error
