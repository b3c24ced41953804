"""The partitions that are left to other writers after a compaction lost to them."""

from lakehouse.compact.plan.compaction import partitions_removed_from
from lakehouse.delta.commits import Commit
from lakehouse.delta.snapshot import Column
from lakehouse_tests.support.example_snapshots import data_file, snapshot

DAYS = ("2013-01-01", "2013-01-01", "2013-01-02", "2013-01-02")
LAYOUT = snapshot(
    [
        data_file(100 + number, f"{number}", partition=(("at", at),))
        for number, at in enumerate(DAYS)
    ],
    columns=(Column(name="id", type="bigint"), Column(name="at", type="date")),
)


def _commit(*removed: str, changed_data: bool = True) -> Commit:
    return Commit(
        version=4,
        committed_ms=0,
        operation="DELETE",
        changed_data=changed_data,
        removed_paths=removed,
    )


def test_a_partition_is_contested_if_files_of_it_were_taken() -> None:
    first, second = (partitions_removed_from(LAYOUT, [_commit(path)]) for path in ("0", "1"))
    assert first == second != partitions_removed_from(LAYOUT, [_commit("2")])
    assert (
        partitions_removed_from(
            LAYOUT, [_commit("0", changed_data=False), _commit("not there then"), _commit()]
        )
        == frozenset()
    )
