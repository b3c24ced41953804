"""deltalake's packing, and which of its merges pay off."""

from dataclasses import replace

import pytest

from lakehouse.base.reasons import Reason
from lakehouse.compact.plan.compaction import CompactionPlan, plan_table
from lakehouse.compact.plan.packing import pack_for_deltalake
from lakehouse.declare.adopted_file import adopted_table
from lakehouse.declare.compaction import MIB, Compaction
from lakehouse.delta.commits import Commit, Commits
from lakehouse.delta.snapshot import Column, DataFile
from lakehouse_tests.support.example_snapshots import QUIET, data_file, snapshot

TARGET = 100


def named(*sizes: int) -> list[DataFile]:
    return [data_file(size, f"f{place}") for place, size in enumerate(sizes)]


def packed(*sizes: int) -> list[list[int]]:
    bins = pack_for_deltalake(named(*sizes), up_to_bytes=TARGET)
    return [[file.size_bytes for file in bin_.files] for bin_ in bins]


@pytest.mark.parametrize(
    ("sizes", "bins"),
    [
        ((50, 50), [[50, 50]]),
        ((50, 51), []),
        ((60, 30, 60, 30), [[60, 30], [60, 30]]),
        ((30, 60, 40, 30, 20), [[30, 60], [40, 30, 20]]),
        ((10, 101, 10), []),  # the large file between them separates them
        ((10, 10, 101, 10, 10), [[10, 10], [10, 10]]),
        ((), []),
    ],
)
def test_neighbours_are_merged_until_the_next_one_does_not_fit(
    sizes: tuple[int, ...], bins: list[list[int]]
) -> None:
    assert packed(*sizes) == bins


def planned(
    files: list[DataFile], *commits: Commit, target: int = TARGET, **knobs: int
) -> CompactionPlan:
    target_file_bytes = max(target, 4096)
    policy = Compaction(
        engine="deltalake", target_file_bytes=target_file_bytes, **{**QUIET, **knobs}
    )
    found = replace(snapshot(files), columns=(Column(name="id", type="bigint"),))
    history = Commits(table="silver/t", commits=commits)
    table = replace(adopted_table("silver/t", "/t"), compaction=policy)
    return plan_table(table, found, history, now_ms=0)


def commit(version: int, *paths: str, read: int | None = None) -> Commit:
    plan = '{"plan": {"version": %d, "target_file_bytes": 4096}}'
    return Commit(
        version=version,
        committed_ms=version,
        operation="WRITE" if read is None else "OPTIMIZE",
        changed_data=read is None,
        added_paths=paths,
        user_metadata=None if read is None else plan % read,
    )


def test_files_that_the_last_compaction_read_and_left_do_not_make_another_one_due() -> None:
    left = [data_file(2_000, "left-0"), data_file(2_000, "left-1")]
    output = data_file(4_000, "output", compacted=True)
    past = (commit(1, "left-0"), commit(2, "left-1"), commit(3, "output", read=2))
    found = planned([output, *left], *past)
    assert (found.bins, found.reason) == ((), Reason.ALREADY_COMPACTED)


def test_files_that_were_committed_during_a_compaction_are_new_to_the_next_one() -> None:
    files = [
        data_file(4_000, "output", compacted=True),
        data_file(2_000, "meanwhile-1"),
        data_file(2_000, "meanwhile-0"),
    ]
    past = (commit(3, "meanwhile-0", "meanwhile-1"), commit(4, "output", read=2))
    found = planned(files, *past)
    assert [file.path for file in found.bins[0].files] == ["meanwhile-1", "meanwhile-0"]
    assert found.sentence == "2 files (3.9 KiB) merge into 1; by deltalake"


def test_a_large_output_is_not_rewritten_for_a_few_small_files() -> None:
    files = [*named(*[MIB] * 3), data_file(100 * MIB, "output", compacted=True)]
    found = planned(
        files, commit(1, "output", read=0), commit(2, "f0", "f1", "f2"), target=128 * MIB
    )
    assert (found.statement.up_to_bytes, found.files_removed) == (16 * MIB, 3)
    many = [*named(*[MIB] * 20), data_file(10 * MIB, "output", compacted=True)]
    new = commit(2, *(file.path for file in many[:-1]))
    found = planned(many, commit(1, "output", read=0), new, target=128 * MIB)
    assert (found.statement.up_to_bytes, found.files_removed) == (32 * MIB, 21)


def test_a_partition_is_never_split_and_the_plan_says_so() -> None:
    files = named(1_000, 1_000)
    assert planned(files, max_bytes_per_run=2_000).sentence.endswith("merge into 1; by deltalake")
    assert planned(files, max_bytes_per_run=1_999).sentence.endswith(
        "merge into 1; more than max_bytes_per_run (2 KiB), since deltalake splits no partition; "
        "by deltalake"
    )
