"""deltalake's packing, and which of its merges pay off."""

from dataclasses import replace

from lakehouse.compact.plan.compaction import CompactionPlan, plan_table
from lakehouse.declare.adopted_file import adopted_table
from lakehouse.declare.policies import Compaction
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
