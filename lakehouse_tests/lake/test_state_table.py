"""The lake's own tables: `_lakehouse/operations` and `_lakehouse/records`."""

import threading
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from lakehouse.base.errors import Broken, LakehouseError
from lakehouse.base.operation import Figure, UpkeepOperation
from lakehouse.base.text import DAY_MS
from lakehouse.lake import commits, state_tables
from lakehouse.lake.lake import Lake
from lakehouse.lake.state_tables import put_records, read_operations, read_records, record_operation
from lakehouse.store import DiskStore, Store
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.counting_store import CountingStore

KEY = "_lakehouse/operations"


def vacuum(number: int, **facts: Any) -> UpkeepOperation:
    own = {"table": f"bronze/t{number % 2}", "operation_id": str(number), "ended_ms": number}
    return UpkeepOperation(kind="vacuum", **own, **facts)


@pytest.fixture
def lake(store: Store, tmp_path: Path) -> Lake:
    """A lake without tables, on each kind of store."""
    return Lake(settings=own_settings(tmp_path), store=store)


@pytest.fixture
def on_disk(tmp_path: Path) -> Lake:
    """A lake without tables, which deltalake can open."""
    return Lake(settings=own_settings(tmp_path), store=DiskStore(tmp_path / "lake"))


def test_an_operation_comes_back_as_it_was_and_any_reader_of_delta_sees_it(on_disk: Lake) -> None:
    lake = on_disk
    whole = vacuum(
        2,
        started_ms=1,
        result="failed",
        reason="VACUUM_DUE",
        why="denied: ü",
        run="run 1",
        by_person=True,
        seconds=0.1,
        vcpu_seconds=0.2,
        requests={"GetObject": 7},
        usd=1e-7,
        figures=(Figure("files", 3, None), Figure("usd", None, 1.5)),
        detail={"kept": ["ü"]},
    )
    assert read_operations(lake) == []
    record_operation(lake, vacuum(3))
    record_operation(lake, whole)
    assert read_operations(lake) == [whole, vacuum(3)]
    assert read_operations(lake, "bronze/t0", kind="vacuum") == [whole]
    assert read_operations(lake, kind="compaction") == read_operations(lake, since_ms=4) == []
    rows = DeltaTable(lake.table_uri(KEY)).to_pyarrow_table().to_pylist()
    predicted = {row["operation_id"]: dict(row["predicted"]) for row in rows}
    assert predicted == {"2": {"files": 3, "usd": None}, "3": {}}


def test_what_has_not_changed_is_not_read_again(tmp_path: Path) -> None:
    store = CountingStore()
    lake = Lake(settings=own_settings(tmp_path), store=store)
    record_operation(lake, vacuum(1))
    for expected in ({"LIST": 1, "GET": 3, "HEAD": 1}, {"HEAD": 2}):
        store.requests.clear()
        assert read_operations(lake) == [vacuum(1)]
        assert store.taken() == expected


def test_writers_and_merges_at_once_lose_and_double_nothing(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_tables, "_MERGED_COUNT", 5)

    def write(first: int) -> None:
        for number in range(first, first + 12):
            record_operation(lake, vacuum(number))

    writers = [threading.Thread(target=write, args=(first,)) for first in (0, 100, 200)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    numbers = [int(each.operation_id) for each in read_operations(lake)]
    assert numbers == [*range(12), *range(100, 112), *range(200, 212)]
    facts = lake.facts(KEY)
    assert facts is not None and facts.snapshot.file_count < 10
    assert {commit.operation for commit in facts.history.commits} >= {"WRITE", "OPTIMIZE"}


@pytest.fixture
def lake_of_four(on_disk: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A lake with four operations, whose files were merged once."""
    monkeypatch.setattr(state_tables, "_MERGED_COUNT", 3)
    for number in range(4):
        record_operation(on_disk, vacuum(number))
    return on_disk


def test_a_merge_deletes_what_an_earlier_one_replaced_a_day_later(
    lake_of_four: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = lake_of_four
    folder = Path(lake.table_uri(KEY))
    before = {path.name for path in folder.glob("*.parquet")}
    assert len(before) == 5  # nothing is deleted yet
    clock = state_tables.now_ms() + 2 * DAY_MS
    for module in (state_tables, commits):
        monkeypatch.setattr(module, "now_ms", lambda: clock)
    for number in range(4, 8):
        record_operation(lake, vacuum(number))
    after = {path.name for path in folder.glob("*.parquet")}
    assert len(before - after) == 4
    assert len(read_operations(lake)) == len(DeltaTable(folder).to_pyarrow_table()) == 8
    assert [*folder.glob("_delta_log/*.checkpoint.parquet")]


def test_a_file_that_a_restore_has_brought_back_is_not_deleted(lake_of_four: Lake) -> None:
    lake = lake_of_four
    DeltaTable(lake.table_uri(KEY)).restore(2)
    horizon_ms = state_tables.now_ms() + DAY_MS
    commits.delete_dead_files(lake, KEY, horizon_ms, state_tables._OWN_FILE)
    assert [each.ended_ms for each in read_operations(lake)] == [0, 1]


def test_an_unreadable_file_makes_all_operations_unknown(lake: Lake, tmp_path: Path) -> None:
    record_operation(lake, vacuum(1))
    [file] = [each for each in lake.store.list(KEY) if each.name.endswith(".parquet")]
    lake.store.put(file.name, b"PAR1 and more")
    with pytest.raises(Broken, match=r"^_lakehouse/operations: a file cannot be read"):
        read_operations(Lake(settings=own_settings(tmp_path), store=lake.store))
    lake.store.delete([file.name])
    with pytest.raises(LakehouseError, match="a file cannot be read"):
        read_operations(lake)


def test_a_value_that_is_no_json_makes_the_records_unknown(memory: Lake) -> None:
    row = {"kind": "pause", "table": "bronze/t", "key": "", "at": 1, "value": "{"}
    state_tables._NOTES.append(memory, [row])
    with pytest.raises(Broken, match=r"^_lakehouse/records: a value"):
        read_records(memory, "pause")


def test_of_each_record_the_newest_counts_also_after_a_merge(
    memory: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of any size are merged, so that none keeps a value that was replaced or deleted."""
    monkeypatch.setattr(state_tables, "_MERGED_COUNT", 4)
    monkeypatch.setattr(state_tables, "_SMALL_BYTES", 0)
    for number in range(10):
        put_records(memory, "note", {("bronze/a", ""): {"n": number}, ("bronze/b", "x"): number})
    put_records(memory, "note", {("bronze/b", "x"): None})
    put_records(memory, "other", {("bronze/a", ""): 1})
    put_records(memory, "other", {})
    assert read_records(memory, "note") == {("bronze/a", ""): {"n": 9}}
    assert read_records(memory, "note", "bronze/b") == {}
    monkeypatch.setattr(state_tables, "_MERGED_COUNT", 1)
    put_records(memory, "other", {("bronze/a", ""): None})
    facts = memory.facts("_lakehouse/records")
    assert facts is not None and facts.snapshot.row_count == 1
    put_records(memory, "note", {("bronze/a", ""): None})
    assert read_records(memory, "note") == {}
