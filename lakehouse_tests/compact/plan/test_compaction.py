"""The plan is Delta's own selection and packing."""

import re
from collections.abc import Sequence

import pytest

from lakehouse.base.errors import Refused
from lakehouse.base.reasons import Reason
from lakehouse.compact.plan.compaction import CompactionPlan
from lakehouse.delta.snapshot import Column, DataFile
from lakehouse_tests.support.example_snapshots import data_file, plan, plan_of, snapshot

# Whole-table sizes of a bin, smallest first. The target is 8,000 bytes, files below 6,000 are candidates.
PACKING = {
    "up to the target and no further": ([4_000, 4_000], [[4_000, 4_000]]),
    "a byte over the target closes the bin": ([4_000, 4_001], []),
    "ascending, whatever the order": ([3_000, 1_000, 2_000], [[1_000, 2_000, 3_000]]),
    "no look-back to a bin with room": ([1_000, 5_500, 2_000, 5_000], [[1_000, 2_000, 5_000]]),
    "the file that does not fit starts the next bin": ([2_500] * 5, [[2_500] * 3, [2_500] * 2]),
    "the last file alone is left": ([2_600] * 4, [[2_600] * 3]),
    "at three quarters of the target it is no candidate": ([1_000, 1_000, 6_000], [[1_000, 1_000]]),
    "a byte below it is one": ([1_000, 1_000, 5_999], [[1_000, 1_000, 5_999]]),
    "one file": ([1_000], []),
    "no file": ([], []),
}


def sizes(found: CompactionPlan) -> list[list[int]]:
    return [[file.size_bytes for file in bin_.files] for bin_ in found.bins]


@pytest.mark.parametrize(("files", "bins"), PACKING.values(), ids=PACKING)
def test_bins_are_filled_as_delta_fills_them(files: list[int], bins: list[list[int]]) -> None:
    assert sizes(plan(files)) == bins


# rows, deleted rows, has a vector -> taken although it is large
DELETED = {
    "no vector": (100, 0, False, False),
    "all rows deleted": (100, 100, True, False),
    "a vector and no statistics": (None, 6, True, True),
    "no vector and no statistics": (None, 0, False, False),
    "a vector of no rows in a file of none": (0, 0, True, False),
}


@pytest.mark.parametrize(("rows", "deleted", "has_vector", "taken"), DELETED.values(), ids=DELETED)
def test_a_large_file_is_taken_only_if_its_deleted_rows_cannot_be_counted(
    rows: int | None, deleted: int, has_vector: bool, taken: bool
) -> None:
    large = data_file(
        7_000, "large", rows=rows, deleted=deleted, vector="v" if has_vector else None
    )
    found = plan([large, data_file(500, "a"), data_file(400, "b")])
    assert ("large" in [file.path for bin_ in found.bins for file in bin_.files]) is taken


TEXT_AND_NUMBER = (Column(name="p", type="string"), Column(name="n", type="int"))


def test_a_partition_whose_text_optimize_would_turn_into_null_is_left_alone() -> None:
    files = [
        data_file(500 + place, f"{value}-{place}", partition=(("p", value), ("n", "1")))
        for value in ("", None, "a")
        for place in range(6)
    ]
    table = snapshot(files, columns=TEXT_AND_NUMBER)
    found = plan_of(table)
    assert (found.files_removed, found.files_added) == (12, 2)
    assert {dict(bin_.partition)["p"] for bin_ in found.bins} == {None, "a"}
    assert found.sentence == (
        "12 files (5.9 KiB) merge into 2 in 2 partitions; never merged: 6 files (2.9 KiB) in"
        " partitions with an empty string, since OPTIMIZE would turn the string into null"
        " (delta-io/delta#6150)"
    )
    alone = plan_of(snapshot(files[:6], columns=TEXT_AND_NUMBER))
    assert (alone.bins, alone.reason) == ((), Reason.NOTHING_SMALL)
    assert "would turn the string into null" in alone.sentence


@pytest.mark.parametrize("name", ["p.q", "`p`"])
def test_a_partition_column_that_no_condition_can_select_by_is_refused(name: str) -> None:
    files = [data_file(500, "a", partition=((name, "1"),))]
    with pytest.raises(Refused, match=f"plan of bronze/t: partition column '{name}' has a dot"):
        plan_of(snapshot(files, columns=[Column(name=name, type="int")]))


def test_values_that_cannot_be_cast_share_the_partition_of_null() -> None:
    files = [
        data_file(500, f"{value}-{place}", partition=(("p", "a"), ("n", value)))
        for value in ("", None, "none", "7", "007")
        for place in range(2)
    ]
    found = plan_of(snapshot(files, columns=TEXT_AND_NUMBER))
    names = [{file.path.partition("-")[0] for file in bin_.files} for bin_ in found.bins]
    assert sorted(map(sorted, names)) == [["", "None", "none"], ["007", "7"]]
    assert len(found.partitions or ()) == 2


FRESHNESS = {
    "two fresh files": ([(False, 0), (False, 0)], True),
    "one fresh file beside a compacted one": ([(False, 0), (True, 0)], False),
    "compacted files only": ([(True, 0), (True, 0), (True, 0)], False),
    "two fresh files take the compacted one with them": ([(True, 0), (False, 0), (False, 0)], True),
    "a compacted file with a vector is fresh, whatever is deleted": ([(True, 1), (False, 0)], True),
    "two compacted files with vectors": ([(True, 1), (True, 1)], True),
    "one vector is not enough, however many rows are deleted": ([(True, 99), (True, 0)], False),
}


@pytest.mark.parametrize(("files", "merged"), FRESHNESS.values(), ids=FRESHNESS)
def test_a_bin_needs_two_uncompacted_files(files: list[tuple[bool, int]], merged: bool) -> None:
    made = [
        data_file(1_000, str(place), compacted=old, deleted=rows)
        for place, (old, rows) in enumerate(files)
    ]
    found = plan(made)
    assert found.files_removed == (len(files) if merged else 0)
    assert found.reason is (Reason.MERGEABLE_FILES if merged else Reason.ALREADY_COMPACTED)


def in_day(size_bytes: int, path: str, day: str | None, *, compacted: bool = False) -> DataFile:
    return data_file(size_bytes, path, partition=(("day", day),), compacted=compacted)


def test_a_plan_is_limited_to_the_partitions_that_are_worth_it_and_takes_all_bins_there() -> None:
    worth = [
        in_day(3_000, "a", "1"),
        in_day(3_000, "b", "1"),
        *(in_day(4_000, f"old-{place}", "1", compacted=True) for place in range(2)),
    ]
    compacted = in_day(100, "d", "3", compacted=True)
    found = plan([*worth, in_day(100, "c", "2"), compacted, in_day(100, "e", "3")])
    assert found.partitions == ((("day", "1"),),)
    paths = [[file.path for file in bin_.files] for bin_ in found.bins]
    assert paths == [["a", "b"], ["old-0", "old-1"]]
    assert (found.files_removed, found.files_added, found.bytes_removed) == (4, 2, 14_000)
    assert plan([1_000, 1_000]).partitions is None


SPELLINGS = {
    "timestamp in another zone": (
        "timestamp",
        "2024-01-01 03:04:05",
        "2024-01-01T05:04:05+02:00",
        True,
    ),
    "whole numbers": ("int", "5", "05", True),
    "strings are as they are spelled": ("string", "5", "05", False),
    "null is not the empty string": ("string", None, "", False),
}


@pytest.mark.parametrize(("column_type", "one", "other", "same"), SPELLINGS.values(), ids=SPELLINGS)
def test_two_spellings_of_one_value_are_one_partition(
    column_type: str, one: str | None, other: str | None, same: bool
) -> None:
    found = plan(
        [in_day(100, "a", one), in_day(200, "b", other)],
        columns=[Column(name="day", type=column_type)],
    )
    assert (found.files_removed == 2) is same


def test_a_table_of_a_catalog_is_refused() -> None:
    with pytest.raises(Refused, match="bronze/t: table feature catalogManaged is unknown"):
        plan([1_000, 1_000], features=frozenset({"catalogManaged"}))


NOTHING = {
    "no files": ([], Reason.NOTHING_SMALL),
    "large files": ([6_000, 9_000], Reason.NOTHING_SMALL),
    "a lone small file": ([1_000, 9_000], Reason.NOTHING_SHARES_A_BIN),
    "compacted files": (
        [data_file(1_000, name, compacted=True) for name in "ab"],
        Reason.ALREADY_COMPACTED,
    ),
}


@pytest.mark.parametrize(("files", "reason"), NOTHING.values(), ids=NOTHING)
def test_idle_plans_say_why_with_numbers(files: Sequence[int | DataFile], reason: Reason) -> None:
    found = plan(files)
    assert (found.reason, found.bins, found.partitions) == (reason, (), None)
    assert re.search(r"\d|^one ", found.sentence)
