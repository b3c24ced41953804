"""Finds tables in the lake's layers that are not declared, and says what to do about them."""

from collections.abc import Iterable, Sequence

from lakehouse.core.declaration.compaction_policy import LAYERS
from lakehouse.core.declaration.table import Table
from lakehouse.core.text import first_names

_NAMED = 10


def undeclared_among(keys: Iterable[str], declared: Iterable[Table]) -> tuple[str, ...]:
    """The keys `layer/name` at which no declared table is, sorted."""
    known = {table.key for table in declared}
    unknown = {key for key in keys if key not in known}
    return tuple(sorted(key for key in unknown if _is_in_layer(key)))


def undeclared_sentence(keys: Sequence[str]) -> str:
    """A sentence that names the undeclared tables and what to do. Empty if there are no tables."""
    if not keys:
        return ""
    if len(keys) == 1:
        return (
            f"{first_names(keys)} is in the lake but not declared, so nothing maintains it. "
            "Declare it again, or set location= on the table that replaces it"
        )
    return (
        f"{len(keys)} tables are in the lake but not declared, so nothing maintains them: "
        f"{first_names(keys, most=_NAMED)}. Declare them again, or set location= on the tables "
        "that replace them"
    )


def _is_in_layer(key: str) -> bool:
    layer, _, name = key.partition("/")
    return layer in LAYERS and bool(name) and "/" not in name
