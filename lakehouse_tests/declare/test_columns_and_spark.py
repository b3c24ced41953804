"""Large logs are read column by column: to the very same values, and without the garbage collector."""

import gc
from pathlib import Path

import pytest

from benchmarks import generated_logs
from lakehouse.delta.file_columns import made_of_columns
from lakehouse.delta.log import garbage_uncollected, read_facts
from lakehouse.delta.snapshot import DataFile, Tombstone
from lakehouse.store import DiskStore


def test_values_made_of_columns_are_those_that_their_class_makes() -> None:
    stones = made_of_columns(
        Tombstone, 2, path=["a", "b"], deleted_ms=[1, None], size_bytes=iter([None, 2])
    )
    assert stones == [Tombstone(path="a", deleted_ms=1), Tombstone(path="b", size_bytes=2)]
    assert len(set(stones)) == 2


def test_the_collector_rests_and_works_again_also_after_an_error() -> None:
    with garbage_uncollected():
        assert not gc.isenabled()
    with pytest.raises(ValueError, match="x"), garbage_uncollected():
        raise ValueError("x")
    assert gc.isenabled()
    gc.disable()
    try:
        with garbage_uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_the_benchmark_s_log_holds_what_it_says(tmp_path: Path) -> None:
    generated_logs.build(tmp_path, files=2_000, partitions=40, tombstones=500, commits=5)
    facts = read_facts(DiskStore(tmp_path), generated_logs.KEY, uri="/lake/big")
    assert facts is not None
    snapshot = facts.snapshot
    assert (snapshot.version, snapshot.file_count) == (6, 2_000 + 5 * 50 - 5 * 3)
    assert len(snapshot.tombstones) == 500 + 5 * 3
    assert len({file.partition for file in snapshot.files}) == 40
    assert (
        sum(file.deletion_vector is not None for file in snapshot.files)
        == sum(file.deleted_row_count > 0 for file in snapshot.files)
        > 90
    )
    assert all(type(file) is DataFile and file.row_count for file in snapshot.files)
