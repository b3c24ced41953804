"""The partitions that are left to other writers after a compaction lost to them."""

from dataclasses import replace

from lakehouse.compact.plan.compaction import (
    partitions_removed_from,
    plan_table,
    without_partitions,
)
from lakehouse.compact.plan.estimate import DEFAULT_RATES
from lakehouse.declare.table import Landing, Table
from lakehouse.declare.write_modes import Append
from lakehouse.delta.commits import Commit
from lakehouse.delta.snapshot import Column
from lakehouse_tests.support.example_snapshots import NO_PAST, data_file, snapshot

TABLE = Table(
    key="bronze/t",
    source=Landing(prefix="landing/t/", format="json", schema="id BIGINT, at TIMESTAMP"),
    write=Append(partition_by=("at",)),
)
DAYS = ("2013-01-01", "2013-01-01 00:00:00", "2013-01-02", "2013-01-02")
LAYOUT = snapshot(
    [
        data_file(100 + number, f"{number}", partition=(("at", at),))
        for number, at in enumerate(DAYS)
    ],
    columns=(Column(name="id", type="bigint"), Column(name="at", type="timestamp")),
)


def _commit(*removed: str, changed_data: bool = True) -> Commit:
    return Commit(
        version=4,
        committed_ms=0,
        operation="DELETE",
        changed_data=changed_data,
        removed_paths=removed,
    )


def test_a_partition_is_contested_if_files_of_it_were_taken_however_it_is_spelled() -> None:
    first, second = (partitions_removed_from(LAYOUT, [_commit(path)]) for path in ("0", "1"))
    assert first == second != partitions_removed_from(LAYOUT, [_commit("2")])
    assert (
        partitions_removed_from(
            LAYOUT, [_commit("0", changed_data=False), _commit("not there then"), _commit()]
        )
        == frozenset()
    )


def test_the_rest_of_a_plan_is_priced_and_says_what_it_leaves() -> None:
    whole = plan_table(TABLE, LAYOUT, NO_PAST, now_ms=0)
    rest = without_partitions(
        whole, LAYOUT, partitions_removed_from(LAYOUT, [_commit("1")]), rates=DEFAULT_RATES
    )
    assert (whole.files_removed, rest.files_removed, rest.partitions) == (
        4,
        2,
        ((("at", "2013-01-02"),),),
    )
    assert rest.sentence.endswith("; omitted, since other writers removed files there: 2 files")
    assert 0 < rest.estimate.seconds < whole.estimate.seconds and rest.estimate.get_requests == 0


def test_in_a_bucket_the_rest_is_priced_with_its_requests() -> None:
    snapshot = replace(LAYOUT, uri="s3a://lake/bronze/t")
    whole = plan_table(TABLE, snapshot, NO_PAST, now_ms=0)
    rest = without_partitions(
        whole, snapshot, partitions_removed_from(snapshot, [_commit("1")]), rates=DEFAULT_RATES
    )
    assert (
        0 < rest.estimate.get_requests < whole.estimate.get_requests
        and 0 < rest.estimate.put_requests < whole.estimate.put_requests
    )


def test_a_table_without_partitions_has_no_rest() -> None:
    flat = replace(
        LAYOUT,
        partition_columns=(),
        files=tuple(replace(file, partition=()) for file in LAYOUT.files),
    )
    whole = plan_table(TABLE, flat, NO_PAST, now_ms=0)
    assert whole.bins
    assert not without_partitions(
        whole, flat, partitions_removed_from(flat, [_commit("1")]), rates=DEFAULT_RATES
    ).bins
