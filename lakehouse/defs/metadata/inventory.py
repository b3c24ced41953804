"""An inventory as Dagster metadata."""

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from lakehouse.core.declaration.table import Table
from lakehouse.core.declaration.undeclared_tables import undeclared_among, undeclared_sentence
from lakehouse.defs.metadata.table import Metadata

if TYPE_CHECKING:
    from lakehouse.engine.inventory.load import InventoryOutcome


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
    return metadata
