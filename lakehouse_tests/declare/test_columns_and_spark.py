"""Large logs are read column by column: to the very same values, and without the garbage collector."""

import gc
from array import array
from pathlib import Path

import pytest

from benchmarks import generated_logs
from lakehouse import Append, Landing, Table
from lakehouse.compact.plan.compaction import plan_table
from lakehouse.compact.plan.decision import state_of
from lakehouse.compact.plan.health import assess_health
from lakehouse.delta.file_columns import FileColumns, Rows, made_of_columns
from lakehouse.delta.log import fold, garbage_uncollected, read_facts
from lakehouse.delta.snapshot import DataFile, TableFacts, Tombstone, by_partition
from lakehouse.store import DiskStore


def test_values_made_of_columns_are_those_that_their_class_makes() -> None:
    stones = made_of_columns(
        Tombstone, 2, path=["a", "b"], deleted_ms=[1, None], size_bytes=iter([None, 2])
    )
    assert stones == [Tombstone(path="a", deleted_ms=1), Tombstone(path="b", size_bytes=2)]
    assert len(set(stones)) == 2


def test_a_column_that_is_left_out_is_no_default() -> None:
    with pytest.raises(AssertionError):
        made_of_columns(Tombstone, 1, path=["a"])


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
    assert (snapshot.version, snapshot.file_count, len(snapshot.tombstones)) == (
        6,
        2_000 + 5 * 50 - 5 * 3,
        500 + 5 * 3,
    )
    assert len({file.partition for file in snapshot.files}) == 40
    assert (
        sum(file.deletion_vector is not None for file in snapshot.files)
        == sum(file.deleted_row_count > 0 for file in snapshot.files)
        > 90
    )
    assert all(type(file) is DataFile and file.row_count for file in snapshot.files)


def test_a_table_in_columns_is_planned_like_one_of_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generated_logs.build(tmp_path, files=2_000, partitions=40, tombstones=500, commits=5)
    source = Landing(prefix="landing/big/", format="json", schema="id BIGINT, day DATE")
    table = Table(key=generated_logs.KEY, source=source, write=Append())

    def read(most_objects: int) -> TableFacts:
        monkeypatch.setattr(fold, "MOST_OBJECTS", most_objects)
        facts = read_facts(DiskStore(tmp_path), generated_logs.KEY, uri="/lake/big")
        assert facts is not None
        return facts

    objects, columns = read(1_000_000), read(0)
    assert isinstance(columns.snapshot.files, Rows)
    assert not columns.snapshot.files.keeps_objects
    assert columns.snapshot == objects.snapshot
    found = list[object]()
    for facts in (objects, columns):
        plan = plan_table(table, facts.snapshot, facts.history, now_ms=1_785_000_000_000)
        assert plan.bins
        state = state_of(facts.snapshot, plan)
        found.append((plan, assess_health(facts.snapshot, plan), state))
    assert found[0] == found[1]


def test_files_stay_in_order_if_two_writers_spell_their_partition_differently() -> None:
    partition = (("p", "1"), ("q", None))
    columns = FileColumns(partition=array("I", [0, 1, 0]), partitions=(partition, partition))
    [group] = by_partition(Rows(columns, range(3))).values()
    assert isinstance(group, Rows)
    assert [*group.places] == [0, 1, 2]
