"""A lakehouse that looks after itself: Delta tables as Dagster assets, each with its own upkeep.

A declaration imports its words from here: `from lakehouse import Compaction, Table`. The names are stable. Each is loaded when it is first
asked for, so that `import lakehouse` stays quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakehouse.core.changes.sources import Debezium, Dms
    from lakehouse.core.declaration.compaction_policy import BinPacking, Compaction, LiquidClustering, ZOrder
    from lakehouse.core.declaration.landing import Landing
    from lakehouse.core.declaration.prices import Prices
    from lakehouse.core.declaration.strategies import AfterWrite, AutoCompaction, BySensor, Chosen, NoCompaction, OptimizedWrite, Scheduled
    from lakehouse.core.declaration.table import Append, History, Merge, Overwrite, Table, table
    from lakehouse.core.declaration.vacuum_policy import SHORT_RETENTION_RISK, Vacuum
    from lakehouse.core.declaration.windows import Window

__all__ = [
    "SHORT_RETENTION_RISK",
    "AfterWrite",
    "Append",
    "AutoCompaction",
    "BinPacking",
    "BySensor",
    "Chosen",
    "Compaction",
    "Debezium",
    "Dms",
    "History",
    "Landing",
    "LiquidClustering",
    "Merge",
    "NoCompaction",
    "OptimizedWrite",
    "Overwrite",
    "Prices",
    "Scheduled",
    "Table",
    "Vacuum",
    "Window",
    "ZOrder",
    "table",
]
_HOMES = {
    **dict.fromkeys(("Debezium", "Dms"), "changes.sources"),
    **dict.fromkeys(("Append", "History", "Merge", "Overwrite", "Table", "table"), "declaration.table"),
    **dict.fromkeys(("BinPacking", "Compaction", "LiquidClustering", "ZOrder"), "declaration.compaction_policy"),
    **dict.fromkeys(
        ("AfterWrite", "AutoCompaction", "BySensor", "Chosen", "NoCompaction", "OptimizedWrite", "Scheduled"), "declaration.strategies"
    ),
    **dict.fromkeys(("SHORT_RETENTION_RISK", "Vacuum"), "declaration.vacuum_policy"),
    "Landing": "declaration.landing",
    "Prices": "declaration.prices",
    "Window": "declaration.windows",
}


def __getattr__(name: str) -> object:
    """The word of that name, from the module that has it."""
    if name not in _HOMES:
        raise AttributeError(f"module 'lakehouse' has no attribute {name!r}; accepted: {', '.join(__all__)}")
    return getattr(import_module(f"lakehouse.core.{_HOMES[name]}"), name)
