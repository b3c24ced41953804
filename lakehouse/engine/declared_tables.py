"""The tables that a package declares, found by importing it by the name that the settings give."""

import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType

from lakehouse.core.declaration.table import Table, find_tables
from lakehouse.core.errors import Refused
from lakehouse.core.settings import Settings


def declared_tables(settings: Settings) -> dict[str, Table]:
    """Every declared table by key, inputs before what reads them.

    Raises:
        Refused: as for `table_modules` and `find_tables`.
    """
    return find_tables(table_modules(settings.tables))


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
