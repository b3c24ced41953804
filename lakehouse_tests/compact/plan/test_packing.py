"""deltalake's packing, and which of its merges pay off."""

from dataclasses import replace

from lakehouse.base.reasons import Reason
from lakehouse.compact.plan.compaction import CompactionPlan, plan_table
from lakehouse.declare.adopted_file import adopted_table
from lakehouse.declare.compaction import MIB, Compaction
from lakehouse.delta.commits import Commit, Commits
from lakehouse.delta.snapshot import Column, DataFile
from lakehouse_tests.support.example_snapshots import QUIET, data_file, snapshot

TARGET = 4096


def planned(files: list[DataFile], *commits: Commit, **knobs: int) -> CompactionPlan:
    policy = Compaction(engine="deltalake", **{**QUIET, "target_file_bytes": TARGET, **knobs})
    found = replace(snapshot(files), columns=(Column(name="id", type="bigint"),))
    history = Commits(table="silver/t", commits=commits)
    table = replace(adopted_table("silver/t", "/t"), compaction=policy)
    return plan_table(table, found, history, now_ms=0)


def test_deltalake_gets_the_bins_of_an_optimize_by_spark() -> None:
    sizes = (900, 2_000, 1_500, 3_000, 100)
    files = [data_file(size, f"f{place}") for place, size in enumerate(sizes)]
    found = planned(files)
    bins = [[file.size_bytes for file in bin_.files] for bin_ in found.bins]
    assert bins == [[100, 900, 1_500]]
    assert found.sentence == "3 files (2.4 KiB) merge into 1; by deltalake"


def test_no_file_is_written_for_a_bin_without_rows() -> None:
    files = [data_file(100, name, rows=0) for name in ("a", "b")]
    assert (planned(files).files_removed, planned(files).files_added) == (2, 0)


def test_an_output_and_one_new_file_wait_for_another_one() -> None:
    output = data_file(2_000, "output", compacted=True)
    new = [data_file(500, f"new-{number}") for number in range(2)]
    assert planned([output, new[0]]).reason is Reason.ALREADY_COMPACTED
    assert planned([output, *new]).files_removed == 3


def test_a_large_output_is_not_rewritten_for_a_few_small_files() -> None:
    small = [data_file(MIB, f"f{number}") for number in range(3)]
    output = data_file(90 * MIB, "output", compacted=True)
    found = planned([*small, output], target_file_bytes=128 * MIB)
    assert found.files_removed == 3


def test_one_run_merges_the_smallest_files_of_a_large_table() -> None:
    files = [data_file(size, f"f{size}") for size in (900, 1_000, 1_100, 1_200)]
    found = planned(files, max_bytes_per_run=2_000)
    assert (found.bytes_removed, found.files_left) == (1_900, 1)
