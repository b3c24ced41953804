"""What the benchmark of random tables sees if a compaction is not as it was planned."""

from collections.abc import Sequence

import pytest

from benchmarks.random_tables import differences
from lakehouse.delta.commits import Commit
from lakehouse.delta.snapshot import DataFile
from lakehouse_tests.support.example_snapshots import data_file, plan, snapshot

FILES = (
    data_file(1_000, "a"),
    data_file(2_000, "b"),
    data_file(3_000, "c"),
    data_file(1_000, "d"),
    data_file(7_000, "large"),
)


def commit(removed: Sequence[DataFile], added: int = 1) -> Commit:
    return Commit(
        version=8,
        committed_ms=0,
        operation="OPTIMIZE",
        changed_data=False,
        removed_paths=tuple(file.path for file in removed),
        added_paths=tuple(f"new-{place}" for place in range(added)),
        removed_bytes=sum(file.size_bytes for file in removed),
    )


# what the commits removed and how many files each added -> the differences
OTHERWISE = {
    "as planned": ([commit(FILES[:4])], []),
    "one file was left": (
        [commit(FILES[:3])],
        ["files removed", "bytes removed", "planned, not removed"],
    ),
    "a large one was taken": (
        [commit(FILES)],
        ["files removed", "bytes removed", "removed, not planned"],
    ),
    "two files came out": ([commit(FILES[:4], added=2)], ["files added"]),
    "nothing was committed": (
        [],
        ["files removed", "files added", "bytes removed", *["planned, not removed"] * 4, "commits"],
    ),
    "two commits": ([commit(FILES[:2]), commit(FILES[2:4], added=0)], ["commits"]),
}


@pytest.mark.parametrize(("commits", "told"), OTHERWISE.values(), ids=OTHERWISE)
def test_a_compaction_not_as_planned_is_named(commits: Sequence[Commit], told: list[str]) -> None:
    found = differences(snapshot(FILES), plan(FILES), commits)
    assert [difference.split(":")[0] for difference in found] == told


def test_a_file_of_the_same_size_may_stand_in_for_another() -> None:
    files = [data_file(2_500, name) for name in "abcd"]
    assert differences(snapshot(files), plan(files), [commit([files[0], files[1], files[3]])]) == ()
