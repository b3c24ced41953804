"""Files that a compaction by deltalake has copied into the table stay if they may be committed."""

from pathlib import Path
from random import Random
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake

from lakehouse.base.errors import Broken, Transient
from lakehouse.compact import deltalake_run
from lakehouse.compact.run import compact
from lakehouse.lake.lake import Lake
from lakehouse.store import DiskStore
from lakehouse_tests.compact.test_deltalake_run import orders
from lakehouse_tests.deltalake_tables import KEY, adopted, contents, no_spark, rows


def data_files(uri: str) -> set[Path]:
    return {*Path(uri).rglob("*.parquet")}


def without_answer(lake: Lake, uri: str, *, is_committed: bool) -> None:
    """A compaction whose request to commit gets no answer."""
    real = DiskStore.put_if_absent

    def silent(store: DiskStore, name: str, data: bytes) -> bool:
        if "_delta_log" not in name:
            return real(store, name, data)
        if is_committed:
            real(store, name, data)
        raise Transient("no answer")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DiskStore, "put_if_absent", silent)
        with pytest.raises(Transient, match="no answer"):
            compact(lake, no_spark, adopted(uri))


def test_files_of_an_unknown_commit_stay(tmp_path: Path) -> None:
    uri, lake = orders(tmp_path)
    before = data_files(uri)
    without_answer(lake, uri, is_committed=False)
    assert len(left := data_files(uri) - before) == 1
    assert compact(lake, no_spark, adopted(uri)).version_after == 4
    assert left < data_files(uri) and len(contents(uri)) == 40


@pytest.mark.parametrize("is_log_whole", [True, False])
def test_a_committed_file_stays_without_a_tombstone(tmp_path: Path, is_log_whole: bool) -> None:
    """An older version needs it, and only a vacuum ends that."""
    uri, lake = orders(
        tmp_path, configuration={"delta.deletedFileRetentionDuration": "interval 0 seconds"}
    )
    kept, before = contents(uri), data_files(uri)
    without_answer(lake, uri, is_committed=True)
    [committed] = data_files(uri) - before
    table = DeltaTable(uri)
    table.delete("id < 20")
    table.create_checkpoint()
    if not is_log_whole:
        for version in range(5):
            Path(uri, f"_delta_log/{version:020}.json").unlink()
        with pytest.raises(Broken, match="later compactions are not affected"):
            compact(lake, no_spark, adopted(uri))
    for place in (900, 910, 920):
        write_deltalake(uri, rows(Random(place), 10, place), mode="append")
    assert compact(lake, no_spark, adopted(uri)).version_after == 9
    assert committed.exists()
    if is_log_whole:
        assert contents(uri, version=4) == kept


def test_nothing_stays_of_files_that_were_not_all_delivered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, lake = orders(tmp_path, partition_by=["number"])
    before, real = data_files(uri), deltalake_run._copy_file

    def full(*args: Any) -> None:
        if data_files(uri) != before:
            raise Transient("the disk is full")
        real(*args)

    monkeypatch.setattr(deltalake_run, "_copy_file", full)
    with pytest.raises(Transient, match="the disk is full"):
        compact(lake, no_spark, adopted(uri))
    assert data_files(uri) == before
    assert lake.facts(KEY).snapshot.version == 3  # type: ignore[union-attr]
