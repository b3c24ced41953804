"""Z-order and liquid clustering are planned by their own rules, and refused where Delta refuses them."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from lakehouse.base.errors import Refused
from lakehouse.base.reasons import Reason
from lakehouse.compact.plan.compaction import CompactionPlan
from lakehouse.compact.plan.decision import find_trigger, is_due, state_of
from lakehouse.declare.policies import LiquidClustering, ZOrder
from lakehouse.delta.commits import Commits
from lakehouse.delta.snapshot import Column, DataFile, Snapshot
from lakehouse_tests.compact.plan.test_optimize_bins import paths
from lakehouse_tests.support.example_snapshots import NO_PAST, POLICY, data_file, plan_of, snapshot
from lakehouse_tests.support.optimize_oracle import after, delta_bins, written

COLUMNS = (
    Column(name="id", type="bigint"),
    Column(name="text", type="string"),
    Column(name="day", type="int"),
)
Z_ORDER, CLUSTERED = ZOrder(columns=("id", "text")), LiquidClustering(columns=("id",))


def daily(day: int, *sizes: int, name: str = "f") -> list[DataFile]:
    return [
        data_file(size, f"{name}{day}-{place}", partition=(("day", str(day)),))
        for place, size in enumerate(sizes)
    ]


def zordered(table: Snapshot, past: Commits = NO_PAST, **knobs: Any) -> CompactionPlan:
    policy = replace(POLICY, **{"data_layout": Z_ORDER, **knobs})
    return plan_of(table, policy, past=past, now_ms=1_000 * table.version)


def clustered(table: Snapshot, past: Commits = NO_PAST, **knobs: Any) -> CompactionPlan:
    return zordered(table, past, data_layout=CLUSTERED, **knobs)


def start(*, days: bool, by: Sequence[str] = ()) -> Snapshot:
    features = frozenset({"clustering"}) if by else frozenset[str]()
    return snapshot(
        [],
        columns=COLUMNS,
        partition_columns=["day"] if days else [],
        clustering_columns=by,
        features=features,
    )


def liquid() -> tuple[Snapshot, Commits]:
    files = [data_file(4_000, "a"), data_file(6_000, "b")]
    return written(start(days=False, by=["id"]), NO_PAST, files)


def done(table: Snapshot, past: Commits, plan: CompactionPlan) -> tuple[Snapshot, Commits]:
    bins = delta_bins(table, plan)
    assert sorted(map(len, bins)) == sorted(len(bin_.files) for bin_ in plan.bins)
    halves = [sum(file.size_bytes for file in bin_) // 2 for bin_ in bins]
    return after(table, past, plan, bins, halves)


def test_a_z_order_takes_every_file_once_and_then_waits_for_a_quarter_of_new_bytes() -> None:
    table, past = written(
        start(days=True), NO_PAST, [*daily(1, 9_000, 9_000), *daily(2, 500, 500), *daily(3, 5)]
    )
    first = zordered(table, past)
    assert (first.reason, first.files_removed, first.files_added) == (Reason.OUT_OF_ORDER, 4, 3)
    assert first.partitions == ((("day", "2"),), (("day", "1"),))
    assert first.sentence == (
        "all 4 files (19 KiB) in 2 partitions are rewritten in the order by id, text into at most 3; not in that order yet: "
        "5 files (19 KiB)"
    )
    table, past = done(table, past, first)
    assert (zordered(table, past).reason, zordered(table, past).bins) == (Reason.IN_ORDER, ())
    table, past = written(table, past, [*daily(1, 100, name="new"), *daily(2, 150, name="new")])
    assert zordered(table, past).reason is Reason.IN_ORDER
    table, past = written(table, past, daily(2, 150, name="newer"))
    assert zordered(table, past).partitions == ((("day", "2"),),)


def test_other_columns_are_another_order_and_old_files_may_be_in_order() -> None:
    table, past = written(start(days=True), NO_PAST, daily(1, 900, 900))
    table, past = done(table, past, zordered(table, past))
    table, past = written(table, past, daily(1, 10, name="new"))
    other = zordered(table, past, data_layout=ZOrder(columns=("text",)))
    assert other.reason is Reason.OUT_OF_ORDER
    old = replace(table, files=(*table.files, *daily(2, 50, 60, name="older-than-the-log")))
    assert zordered(old, past).bins == ()
    forgotten = replace(past, commits=past.commits[2:])
    assert zordered(old, forgotten).partitions == ((("day", "2"),), (("day", "1"),))


# How a declaration and the log of Delta 4.4.0 name the same column.
NAMES = {"order.id": "`order.id`", "Day": "day", "a b": "a b", "x'y": "x'y", "a.b.c": "`a.b.c`"}


@pytest.mark.parametrize(("declared", "logged"), NAMES.items())
def test_files_are_in_order_however_the_log_spells_the_column(declared: str, logged: str) -> None:
    layout = ZOrder(columns=(declared,))
    table, past = written(
        snapshot([], columns=[Column(name=declared, type="int")]),
        NO_PAST,
        [data_file(900, "a"), data_file(900, "b")],
    )
    policy = replace(POLICY, data_layout=layout)
    table, past = done(table, past, plan_of(table, policy, past=past, now_ms=0))
    last = replace(past.commits[-1], parameters={"zOrderBy": json.dumps([logged])})
    past = replace(past, commits=(*past.commits[:-1], last))
    table, past = written(table, past, [data_file(10, "new")])
    again = plan_of(table, policy, past=past, now_ms=0)
    assert (again.reason, again.bins) == (Reason.IN_ORDER, ())
    assert ": 1 of its 2 files (10 B); a rewrite waits" in again.sentence


def test_a_z_order_is_bounded_by_partitions_and_kept_for_cold_ones() -> None:
    table, past = written(start(days=True), NO_PAST, [*daily(1, 900, 900), *daily(2, 500, 500)])
    bounded = zordered(table, past, max_bytes_per_run=1_000)
    assert (bounded.files_removed, bounded.files_left) == (2, 2)
    assert zordered(table, past, max_bytes_per_run=1).files_removed == 2
    assert zordered(table, past, cold_hours=1).reason is Reason.ALL_WARM


def test_a_z_order_by_a_partition_column_is_refused() -> None:
    with pytest.raises(Refused, match=r"ZOrder\.columns holds 'day', which is a partition column"):
        plan_of(start(days=True), replace(POLICY, data_layout=ZOrder(columns=("day",))))


def test_a_liquid_table_is_rewritten_whole_while_it_is_below_a_cube_and_then_waits() -> None:
    table, past = liquid()
    first = clustered(table, past)
    assert (first.reason, first.files_removed, first.files_added) == (Reason.OUT_OF_ORDER, 2, 1)
    assert first.partitions is None
    assert first.sentence.startswith(
        "2 files (9.8 KiB) are rewritten in the order by id into at most 1"
    )
    table, past = done(table, past, first)
    assert clustered(table, past).reason is Reason.IN_ORDER
    table, past = written(table, past, [data_file(1_000, "c")])
    assert clustered(table, past).reason is Reason.IN_ORDER
    table, past = written(table, past, [data_file(1_000, "d")])
    assert paths(clustered(table, past)) == [["c", "d", "v9-0"]]


def test_deleted_rows_of_a_cube_that_stays_as_it_is_ask_for_no_run() -> None:
    table, past = liquid()
    table, past = done(table, past, clustered(table, past))
    deleted = {"row_count": 100, "deleted_row_count": 60, "deletion_vector": "u1"}
    table = replace(table, files=tuple(replace(file, **deleted) for file in table.files))
    plan = clustered(table, past, purge_deleted_rows_share=0.2)
    state = state_of(table, plan)
    assert (plan.reason, state.deleted_rows_share) == (Reason.IN_ORDER, 0.6)
    assert not is_due(find_trigger(state, plan.policy, now_ms=1_000 * table.version))


def test_where_the_log_forgot_what_was_clustered_the_figures_are_the_most() -> None:
    table, past = written(start(days=False, by=["id"]), NO_PAST, [data_file(4_000, "a")])
    table = replace(table, files=(*table.files, data_file(4_000, "old")))
    assert clustered(table, past).sentence.startswith("at most 2 files (7.8 KiB) are rewritten")
    assert clustered(table, past, cold_hours=1).reason is Reason.ALL_WARM


def test_clustering_waits_for_its_columns_and_never_comes_with_partitions() -> None:
    waits = "it is clustered by nothing at version 7, and by id from its next write on"
    assert clustered(start(days=False)).sentence == waits
    with pytest.raises(Refused, match="LiquidClustering cannot plan a table with partitions"):
        clustered(start(days=True))


def test_a_table_that_lost_its_clustering_is_packed_and_still_refuses_an_order() -> None:
    table = replace(
        start(days=False),
        features=frozenset({"clustering"}),
        files=(data_file(10, "a"), data_file(20, "b")),
    )
    assert plan_of(table).files_removed == 2
    with pytest.raises(Refused, match="which ZOrder cannot plan"):
        zordered(table)
