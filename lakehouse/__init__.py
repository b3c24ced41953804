"""A lakehouse that maintains itself: Delta tables as Dagster assets, each with its own upkeep.

Declarations import from here: `from lakehouse import Compaction, Table`. The names are stable. Each
name is loaded on first use, so that `import lakehouse` stays fast.
"""

# ruff: noqa: F401

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakehouse.core.declaration.adopted import Adopted
    from lakehouse.core.declaration.archive import Archive, Ttl
    from lakehouse.core.declaration.change_sources import Debezium, Dms
    from lakehouse.core.declaration.compaction_policy import (
        BinPacking,
        Compaction,
        LiquidClustering,
        ZOrder,
    )
    from lakehouse.core.declaration.landing import Csv, Landing
    from lakehouse.core.declaration.prices import Prices
    from lakehouse.core.declaration.strategies import (
        AfterWrite,
        BySensor,
        Scheduled,
    )
    from lakehouse.core.declaration.table import Table, table
    from lakehouse.core.declaration.vacuum_policy import SHORT_RETENTION_RISK, Vacuum
    from lakehouse.core.declaration.write_modes import Append, History, Merge, Overwrite
    from lakehouse.defs.adoption.maintain import MaintainedTables, maintain
    from lakehouse.retain.run.read import read

# The module of each public name, below `lakehouse`.
_HOMES = {
    **dict.fromkeys(("Debezium", "Dms"), "core.declaration.change_sources"),
    **dict.fromkeys(("Append", "History", "Merge", "Overwrite"), "core.declaration.write_modes"),
    **dict.fromkeys(("Table", "table"), "core.declaration.table"),
    **dict.fromkeys(
        ("BinPacking", "Compaction", "LiquidClustering", "ZOrder"),
        "core.declaration.compaction_policy",
    ),
    **dict.fromkeys(
        ("AfterWrite", "BySensor", "Scheduled"),
        "core.declaration.strategies",
    ),
    **dict.fromkeys(("SHORT_RETENTION_RISK", "Vacuum"), "core.declaration.vacuum_policy"),
    "Adopted": "core.declaration.adopted",
    **dict.fromkeys(("Archive", "Ttl"), "core.declaration.archive"),
    **dict.fromkeys(("Csv", "Landing"), "core.declaration.landing"),
    "Prices": "core.declaration.prices",
    # For programs that read tables. Using this name loads PySpark.
    "read": "retain.run.read",
    # For other Dagster projects. Using one of these names loads Dagster.
    "MaintainedTables": "defs.adoption.maintain",
    "maintain": "defs.adoption.maintain",
}
__all__ = [*_HOMES]  # pyright: ignore[reportUnsupportedDunderAll]


def _gone() -> dict[str, str]:
    from lakehouse.core.declaration.gone import GONE

    return GONE


def __getattr__(name: str) -> object:
    """Loads a public name from its module."""
    if name not in _HOMES and name in (gone := _gone()):
        raise AttributeError(f"lakehouse.{name} is gone. {gone[name]}")
    if name not in _HOMES:
        raise AttributeError(
            f"module 'lakehouse' has no attribute {name!r}. Use one of {', '.join(sorted(_HOMES))}."
        )
    return getattr(import_module(f"lakehouse.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """All public names, loaded or not, so that Dagster's `dg` finds the component."""
    return sorted({*globals(), *_HOMES})
