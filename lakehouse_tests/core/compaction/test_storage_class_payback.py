"""Files in a colder storage class are merged only if that pays; what is left out, OPTIMIZE leaves."""

from dataclasses import replace
from random import Random

import pytest

from lakehouse.core.compaction.plan import CompactionPlan
from lakehouse.core.compaction.storage_class_payback import replacement_costs
from lakehouse.core.declaration.compaction_policy import MIB
from lakehouse.core.delta.snapshot import DataFile
from lakehouse.core.reasons import Reason
from lakehouse_tests.core.compaction.test_optimize_bins import in_day, paths, planned
from lakehouse_tests.core.example_snapshots import data_file, snapshot
from lakehouse_tests.core.optimize_oracle import delta_bins
from lakehouse_tests.core.tiers.test_storage_class_costs import PRICES

TARGET = 1024 * MIB
LARGE = 300 * MIB


def plan_with(
    files: list[DataFile], cold: dict[str, str], *, reads: float | None = None
) -> CompactionPlan:
    table = snapshot(files)
    costs = replacement_costs(table, cold, PRICES, now_ms=0)
    table = replace(table, cold_files=costs)
    return planned(table, target_file_bytes=TARGET, reads_per_day=reads)  # type: ignore[arg-type]


def test_a_partition_with_cold_files_is_left_out_as_a_whole_and_the_others_are_merged() -> None:
    files = [*in_day(1, LARGE, LARGE), *in_day(2, LARGE, LARGE)]
    cold = {"1-0": "STANDARD_IA"}
    plan = plan_with(files, cold)
    assert (plan.reason, paths(plan)) == (Reason.MERGEABLE_FILES, [["2-0", "2-1"]])
    assert plan.partitions == ((("day", "2"),),)
    nothing = plan_with(files[:2], cold)
    assert (nothing.reason, nothing.bins) == (Reason.COLD_TIER, ())
    assert nothing.sentence == (
        "1 partition with mergeable files, of which 1 (300 MiB) are in a colder storage class: "
        "reading them costs more than readers would save within 30 days"
    )


def test_without_an_inventory_or_with_other_files_cold_the_plan_is_as_ever() -> None:
    files = in_day(1, LARGE, LARGE)
    assert plan_with(files, {}) == plan_with(files, {"elsewhere": "STANDARD_IA"})
    assert plan_with(files, {}).reason is Reason.MERGEABLE_FILES


@pytest.mark.parametrize(
    ("storage_class", "reads", "merged"),
    [
        ("STANDARD_IA", None, False),
        ("STANDARD_IA", 1e6, True),
        ("INTELLIGENT_TIERING", 0, False),
        ("A_NEW_CLASS", None, False),
        ("GLACIER", 1e12, False),
    ],
)
def test_it_pays_if_readers_save_more_in_a_month_than_reading_and_replacing_costs(
    storage_class: str, reads: float | None, merged: bool
) -> None:
    plan = plan_with(in_day(1, LARGE, LARGE), {"1-0": storage_class}, reads=reads)
    assert (plan.reason is Reason.MERGEABLE_FILES) is merged


def test_many_tiny_cold_files_pay_by_themselves() -> None:
    tiny = in_day(1, *[1024] * 50)
    cold = {f"1-{number}": "STANDARD_IA" for number in range(50)}
    assert plan_with(tiny, cold).files_removed == 50


def test_a_name_with_an_escape_is_found() -> None:
    files = [data_file(LARGE, "a%20b"), data_file(LARGE, "c")]
    assert plan_with(files, {"a b": "GLACIER_IR"}).reason is Reason.COLD_TIER


@pytest.mark.parametrize("seed", range(20))
def test_optimize_touches_no_file_of_a_partition_that_is_left_out(seed: int) -> None:
    random = Random(seed)
    files = [
        file
        for day in range(4)
        for file in in_day(day, *(random.randrange(1, 500) * MIB for _ in range(5)))
    ]
    cold = {file.path: "GLACIER_IR" for file in files if random.random() < 0.15}
    plan = plan_with(files, cold)
    touched = sorted(
        sorted(file.path for file in bin_)
        for bin_ in delta_bins(snapshot(files), plan)
        if plan.bins
    )
    assert touched == sorted(sorted(names) for names in paths(plan))
    assert not {name for names in touched for name in names} & cold.keys()
