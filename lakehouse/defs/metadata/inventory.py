"""An inventory as Dagster metadata."""

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from lakehouse.core.declaration.table import Table
from lakehouse.core.declaration.undeclared_tables import undeclared_among, undeclared_sentence
from lakehouse.core.inventory.objects import PART_GROUPS
from lakehouse.core.inventory.reconcile import Reconciliation
from lakehouse.defs.metadata.markdown import Markdown, markdown_table, markdown_value
from lakehouse.defs.metadata.table import Metadata

if TYPE_CHECKING:
    from lakehouse.engine.inventory.load import InventoryOutcome

_LARGEST_TABLES = 12


def inventory_metadata(
    outcome: "InventoryOutcome", declared: Iterable[Table], *, now_ms: int
) -> Metadata:
    """The totals of an inventory, by use and by storage class.

    A use (`Part`) is, for example, live files, removed files, orphans or the log. The metadata also
    names undeclared tables, and what to do about them.
    """
    reconciliation = outcome.reconciliation
    inventory = outcome.inventory
    shares = [
        *(share for table in reconciliation.tables for share in table.shares),
        *reconciliation.unclaimed,
    ]
    parts = Counter[str]()
    classes = Counter[str]()
    for share in shares:
        parts[share.part.name.lower() if share.part else "unclaimed"] += share.size_bytes
        classes[share.storage_class or "none"] += share.size_bytes
    undeclared = undeclared_among([table.table for table in reconciliation.tables], declared)
    metadata: Metadata = {
        "lakehouse/report": inventory.name,
        "lakehouse/report_age_hours": round(inventory.age_hours(now_ms), 3),
        "lakehouse/objects": inventory.object_count,
        "lakehouse/size_bytes": inventory.size_bytes,
        "lakehouse/rows_loaded": outcome.newly_loaded,
        "lakehouse/seconds": round(outcome.seconds, 3),
        "lakehouse/version": outcome.version,
        "lakehouse/list_requests_saved": reconciliation.list_request_count,
        "lakehouse/tables": len(reconciliation.tables),
        "lakehouse/missing_files": sum(len(table.missing) for table in reconciliation.tables),
        "lakehouse/small_files_unread": sum(share.small_count for share in shares if share.part),
    }
    if undeclared:
        metadata["lakehouse/not_declared"] = undeclared_sentence(undeclared)
    for part, size in sorted(parts.items()):
        metadata[f"lakehouse/bytes_{part}"] = size
    for name, size in sorted(classes.items()):
        metadata[f"lakehouse/class_bytes_{name.lower()}"] = size
    metadata["lakehouse/where"] = markdown_value(_bytes_by_table(reconciliation))
    return metadata


def _bytes_by_table(reconciliation: Reconciliation) -> Markdown:
    """The bytes of the largest tables, of all others and of no table."""
    kind_of = {part: kind for kind, parts in PART_GROUPS.items() for part in parts}
    by_table = {table.table: Counter[str]() for table in reconciliation.tables}
    for table in reconciliation.tables:
        for share in table.shares:
            if share.part is not None:
                by_table[table.table][kind_of[share.part]] += share.size_bytes
    sizes = [(name, kinds) for name, kinds in by_table.items() if kinds]
    sizes.sort(key=lambda row: row[1].total(), reverse=True)
    rows = sizes[:_LARGEST_TABLES]
    smaller = sizes[_LARGEST_TABLES:]
    rest = Counter[str]()
    for _, kinds in smaller:
        rest.update(kinds)
    if rest:
        rows.append((f"{len(smaller)} more tables", rest))
    unclaimed = sum(share.size_bytes for share in reconciliation.unclaimed)
    if unclaimed:
        rows.append(("no table", Counter({"no table": unclaimed})))
    present = {kind for _, kinds in rows for kind in kinds}
    columns = sorted(present, key=[*PART_GROUPS, "no table"].index)
    cells = [
        [name, *(f"{kinds[kind]:,}" for kind in columns), f"{kinds.total():,}"]
        for name, kinds in rows
    ]
    return markdown_table(["bytes", *columns, "sum"], cells)
