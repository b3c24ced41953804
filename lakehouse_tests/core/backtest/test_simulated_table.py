"""The files of a replay, and whose rows lie in which of them."""

import pytest

from lakehouse.core.backtest.row_lineage import Lineage
from lakehouse.core.backtest.simulated_table import SimulatedTable
from lakehouse.core.compaction.bins import Bin
from lakehouse.core.delta.file_history import FileHistory
from lakehouse_tests.core.example_snapshots import data_file, snapshot

FILES = [
    data_file(100, "a", rows=10),
    data_file(200, "b", rows=20),
    data_file(300, "c", rows=30, deleted=15),
    data_file(400, "d", rows=40),
]


def table() -> SimulatedTable:
    return SimulatedTable(Lineage(FileHistory(table="t", start=snapshot(FILES), commits=())))


def test_a_bin_becomes_one_file_of_its_live_rows() -> None:
    replayed = table()
    [made] = replayed.merge(Bin(partition=(), files=tuple(FILES[1:3])), now_ms=7)
    assert (
        made.size_bytes,
        made.row_count,
        made.deletion_vector,
        made.compacted,
        made.modified_ms,
    ) == (350, 35, None, True, 7)
    assert sorted(file.path for file in replayed.files) == ["a", "d", made.path]


@pytest.mark.parametrize(("into", "counts"), [(2, [45, 40]), (3, [30, 55]), (9, [10, 20, 15, 40])])
def test_rows_that_are_laid_out_anew_are_parted_whole_file_by_whole_file(
    into: int, counts: list[int]
) -> None:
    made = table().merge(Bin(partition=(), files=tuple(FILES)), into=into, now_ms=0)
    assert [file.row_count for file in made] == counts
    assert sum(file.size_bytes for file in made) == pytest.approx(850, abs=len(made))
