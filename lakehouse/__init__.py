"""A lakehouse that maintains itself: Delta tables as Dagster assets, each with its own upkeep.

Declarations import from here: `from lakehouse import Compaction, Table`. The names are stable. Each
name is loaded on first use, so that `import lakehouse` stays fast.
"""

# ruff: noqa: F401

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakehouse.adopt.maintain import MaintainedTables, maintain, maintained_metadata
    from lakehouse.declare.landing import Csv, Debezium, Dms, Landing
    from lakehouse.declare.policies import (
        SHORT_RETENTION_RISK,
        AfterWrite,
        Archive,
        BinPacking,
        BySensor,
        Compaction,
        LiquidClustering,
        Scheduled,
        Ttl,
        Vacuum,
        ZOrder,
    )
    from lakehouse.declare.prices import Prices
    from lakehouse.declare.table import Adopted, Append, Merge, Overwrite, Table, table
    from lakehouse.retain.run.read import read

# The module of each public name, below `lakehouse`.
_HOMES = {
    **dict.fromkeys(("Csv", "Debezium", "Dms", "Landing"), "declare.landing"),
    **dict.fromkeys(("Adopted", "Append", "Merge", "Overwrite", "Table", "table"), "declare.table"),
    **dict.fromkeys(
        (
            "AfterWrite",
            "Archive",
            "BinPacking",
            "BySensor",
            "Compaction",
            "LiquidClustering",
            "Scheduled",
            "SHORT_RETENTION_RISK",
            "Ttl",
            "Vacuum",
            "ZOrder",
        ),
        "declare.policies",
    ),
    "Prices": "declare.prices",
    # For programs that read tables. Using this name loads PySpark.
    "read": "retain.run.read",
    # For other Dagster projects. Using one of these names loads Dagster.
    **dict.fromkeys(("MaintainedTables", "maintain", "maintained_metadata"), "adopt.maintain"),
}
__all__ = [*_HOMES]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    """Loads a public name from its module."""
    if name not in _HOMES:
        raise AttributeError(
            f"module 'lakehouse' has no attribute {name!r}. Use one of {', '.join(sorted(_HOMES))}."
        )
    return getattr(import_module(f"lakehouse.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """All public names, loaded or not, so that Dagster's `dg` finds the component."""
    return sorted({*globals(), *_HOMES})
