"""Decides whether a merge of files in a colder storage class pays off.

Reading such a file costs a retrieval. Replacing it early costs the rest of the class's minimum
storage duration. Its rows are written again into STANDARD, where storage costs more. In return,
each read of the table opens fewer files.
"""

from collections.abc import Mapping, Sequence
from math import inf

from lakehouse.core.compaction.bins import PartitionPlan, PlanningFacts
from lakehouse.core.costs.compaction_estimate import usd_per_opening
from lakehouse.core.delta.paths import name_in_table
from lakehouse.core.delta.snapshot import DataFile, Snapshot
from lakehouse.core.inventory.objects import MUST_BE_RESTORED
from lakehouse.core.tiers.storage_class_costs import TierPrices
from lakehouse.core.units import DAY_MS

# A merge pays if readers save its cost within this time.
PAYBACK_DAYS = 30
# Reads of a cold partition per day, assumed if the policy declares no `reads_per_day`.
_READS_PER_DAY = 1.0
_DAYS_PER_MONTH = 30
_GB = 1024**3
# The price list has the price of the warmest tier of INTELLIGENT_TIERING. The files of a cold
# partition are assumed to be in the next tier, which costs as much as STANDARD_IA.
# Source: Amazon S3 pricing, S3 Intelligent-Tiering.
_TIERED = "INTELLIGENT_TIERING"
_AS_COLD_AS = "STANDARD_IA"


def replacement_costs(
    snapshot: Snapshot, classes: Mapping[str, str], prices: TierPrices, *, now_ms: int
) -> dict[str, float]:
    """The cost in USD of reading and replacing each live file in a colder class, by name.

    `classes` maps the decoded names of files in colder classes to their classes. The cost of a file
    that must be restored first is infinite. A class without a price is priced as the class with the
    most expensive retrieval.
    """
    fallback = max(prices.classes.values(), key=lambda each: each.usd_per_gb_retrieved)
    costs = dict[str, float]()
    for file in snapshot.files:
        name = name_in_table(file.path) or ""
        storage_class = classes.get(name)
        if storage_class is None:
            continue
        price = prices.classes.get(storage_class, fallback)
        billed_class = _AS_COLD_AS if storage_class == _TIERED else storage_class
        storage_usd = prices.classes.get(billed_class, price).usd_per_gb_month
        # The surcharge of STANDARD for one month, which is also the payback time.
        surcharge_usd = max(0.0, prices.standard_usd_per_gb_month - storage_usd)
        days_left = max(0.0, price.minimum_days - (now_ms - file.modified_ms) / DAY_MS)
        early_usd = price.usd_per_gb_month * days_left / _DAYS_PER_MONTH
        per_gb_usd = price.usd_per_gb_retrieved + early_usd + surcharge_usd
        is_archived = storage_class in MUST_BE_RESTORED
        costs[name] = inf if is_archived else file.size_bytes / _GB * per_gb_usd
    return costs


def unprofitable_cold_files(facts: PlanningFacts, plan: PartitionPlan) -> Sequence[DataFile]:
    """The planned files in colder classes, if they make the merge of a partition too expensive.

    Empty if the merge pays off.
    """
    costs_by_name = facts.snapshot.cold_files
    if not costs_by_name:
        return ()
    cold_files = list[DataFile]()
    cost_usd = 0.0
    for file in (file for bin_ in plan.bins for file in bin_.files):
        file_usd = costs_by_name.get(name_in_table(file.path) or "")
        if file_usd is not None:
            cold_files.append(file)
            cost_usd += file_usd
    declared = facts.policy.reads_per_day
    reads = (_READS_PER_DAY if declared is None else declared) * PAYBACK_DAYS
    openings_saved = (plan.file_count - len(plan.bins)) * reads
    saved_usd = openings_saved * usd_per_opening(facts.rates.prices, on_s3=True)
    return cold_files if saved_usd < cost_usd else ()
