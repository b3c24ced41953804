"""Records live files in colder storage classes. Plans compactions with the costs to replace them.

`_lakehouse/cold_files/<layer>/<name>.json` names a table's cold files. For a lake on S3, each
loaded inventory replaces the records of all tables inside the lake. A compaction that moves its new
files to a colder class adds them, and removes files that are no longer live. A table without a
record counts as a table without cold files.
"""

import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from lakehouse.core.compaction.plan import CompactionPlan
from lakehouse.core.delta.snapshot import Snapshot, TableFacts
from lakehouse.core.errors import LakehouseError
from lakehouse.engine.clock import now_ms
from lakehouse.engine.journal.records import encoded
from lakehouse.engine.lake import Lake

if TYPE_CHECKING:
    from lakehouse.core.inventory.reconcile import Reconciliation

_FOLDER = "_lakehouse/cold_files"


def recorded_classes(lake: Lake, table: str) -> dict[str, str]:
    """The storage class of each of the table's cold files, by the file's decoded name.

    The result is empty if the record is damaged or cannot be read.
    """
    with contextlib.suppress(FileNotFoundError, LakehouseError, ValueError, AttributeError):
        recorded = json.loads(lake.store.read(record_name_of(table)))
        return {str(name): str(storage_class) for name, storage_class in recorded.items()}
    return {}


def plan_with_cold_files(
    lake: Lake, facts: TableFacts, plan: Callable[[Snapshot], CompactionPlan]
) -> CompactionPlan:
    """The compaction plan for a snapshot, with the costs of replacing recorded cold files."""
    planned = plan(facts.snapshot)
    if not planned.bins or not lake.on_s3(planned.table):
        return planned
    classes = recorded_classes(lake, planned.table)
    if not classes:
        return planned
    from lakehouse.core.compaction.storage_class_payback import replacement_costs
    from lakehouse.engine.costs.price_book import load_price_book

    prices = load_price_book(lake.settings).tiers
    costs = replacement_costs(facts.snapshot, classes, prices, now_ms=now_ms())
    return plan(replace(facts.snapshot, cold_files=costs))


def record_cold_files(lake: Lake, reconciliation: "Reconciliation") -> None:
    """Replaces the records of all tables inside the lake with the cold files in an inventory.

    The inventory does not cover tables outside the lake, so their records stay.
    """
    kept_names = {record_name_of(table) for table in lake.elsewhere}
    for table in reconciliation.tables:
        if table.cold_files:
            name = record_name_of(table.table)
            lake.store.put(name, encoded(table.cold_files))
            kept_names.add(name)
    names = [file.name for file in lake.store.list(_FOLDER)]
    lake.store.delete([name for name in names if name not in kept_names])


def record_name_of(table: str) -> str:
    """The name of a table's record of cold files."""
    return f"{_FOLDER}/{table}.json"
