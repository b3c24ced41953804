"""Whether a merge of files in a colder storage class pays.

Reading such a file costs a retrieval. Replacing it early costs the rest of the class's minimum
storage duration. Its rows are written again into STANDARD. Readers save one opening per merged
file.
"""

from collections.abc import Mapping, Sequence
from math import inf

from lakehouse.core.compaction.bins import PartitionPlan, PlanningFacts
from lakehouse.core.costs.compaction_estimate import usd_per_opening
from lakehouse.core.delta.paths import name_in_table
from lakehouse.core.delta.snapshot import DataFile, Snapshot
from lakehouse.core.inventory.objects import RESTORED_FIRST
from lakehouse.core.tiers.storage_class_costs import TierPrices
from lakehouse.core.units import DAY_MS

# A merge pays if readers save its cost within this time.
PAYBACK_DAYS = 30
# Assumed if nothing is declared: a cold partition is read once a day.
_READS_PER_DAY = 1.0
_GB = 1024**3
# The price list has the price of this class's warmest tier. The next tier costs as much as
# STANDARD_IA.
# Source: Amazon S3 pricing, S3 Intelligent-Tiering.
_TIERED = "INTELLIGENT_TIERING"
_AS_COLD_AS = "STANDARD_IA"


def replacement_costs(
    snapshot: Snapshot, classes: Mapping[str, str], prices: TierPrices, *, now_ms: int
) -> dict[str, float]:
    """The cost in USD of reading and replacing each live file in a colder class, by name.

    `classes` maps decoded names to classes. The cost of a file that must be restored first is
    infinite. A class without a price is priced as the class with the most expensive retrieval.
    """
    dearest = max(prices.classes.values(), key=lambda each: each.usd_per_gb_retrieved)
    costs = dict[str, float]()
    for file in snapshot.files:
        name = name_in_table(file.path) or ""
        storage_class = classes.get(name)
        if storage_class is None:
            continue
        of_class = prices.classes.get(storage_class, dearest)
        as_cold = prices.classes.get(_AS_COLD_AS if storage_class == _TIERED else storage_class)
        month_usd = (as_cold or of_class).usd_per_gb_month
        dearer_usd = max(0.0, prices.standard_usd_per_gb_month - month_usd)
        days_left = max(0.0, of_class.minimum_days - (now_ms - file.modified_ms) / DAY_MS)
        early_usd = of_class.usd_per_gb_month * days_left / PAYBACK_DAYS
        per_gb_usd = of_class.usd_per_gb_retrieved + early_usd + dearer_usd
        is_archived = storage_class in RESTORED_FIRST
        costs[name] = inf if is_archived else file.size_bytes / _GB * per_gb_usd
    return costs


def unprofitable_cold_files(facts: PlanningFacts, plan: PartitionPlan) -> Sequence[DataFile]:
    """The files in colder classes, if they make the merge of a partition too expensive."""
    cold = facts.snapshot.cold_files
    if not cold:
        return ()
    files = [file for bin_ in plan.bins for file in bin_.files]
    costs = [(file, cold.get(name_in_table(file.path) or "")) for file in files]
    cost_usd = sum(cost or 0.0 for _, cost in costs)
    declared = facts.policy.reads_per_day
    reads = (_READS_PER_DAY if declared is None else declared) * PAYBACK_DAYS
    openings_saved = (plan.file_count - len(plan.bins)) * reads
    saved_usd = openings_saved * usd_per_opening(facts.rates.prices, on_s3=True)
    return [file for file, cost in costs if cost is not None] if saved_usd < cost_usd else ()
