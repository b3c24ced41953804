"""The rows and bytes that a write is judged by: those that it reads, and those of the table that it is merged into."""

from dataclasses import replace

from lakehouse import Landing, Merge, Overwrite, Table
from lakehouse.base.reasons import Reason
from lakehouse.delta.snapshot import LogFile, Snapshot, TableFacts
from lakehouse.materialize.derive import confs_to_derive
from lakehouse.materialize.plan import ReadChanges
from lakehouse.spark.temporary_confs import INTERPRETED, are_few
from lakehouse_tests.memory_store import MemoryStore
from lakehouse_tests.support.example_snapshots import data_file, history, snapshot

ORDERS = Table(
    key="bronze/orders",
    source=Landing(prefix="landing/orders/", format="json", schema="id BIGINT"),
    write=Overwrite(),
)
MERGED = Table(
    key="silver/orders",
    inputs=(ORDERS,),
    transform=lambda orders: orders,
    write=Merge(keys=("id",), order_by=("at",)),
)
REPLACED = replace(MERGED, write=Overwrite())
CHANGES = ReadChanges(
    first=7, upto=7, explanation=Reason.INPUTS_CHANGED.explain(versions="bronze/orders 6 to 7")
)


def table_of(rows: int | None, *, newest_bytes: int = 0) -> TableFacts:
    """A table at version 7 with so many rows in 1,000 bytes, of which its newest commit added some."""
    commits = history(True, first=7)
    newest = replace(commits.commits[0], added_bytes=newest_bytes)
    file = LogFile(
        version=7,
        name="bronze/orders/_delta_log/00000000000000000007.json",
        size_bytes=1,
        modified_ms=0,
    )
    return TableFacts(
        snapshot=snapshot([data_file(1_000, rows=rows)]),
        history=replace(commits, commits=(newest,)),
        newest=file,
    )


def is_interpreted(
    table: Table, driver: TableFacts, target: TableFacts | None, increment: ReadChanges | None
) -> bool:
    return (
        confs_to_derive(MemoryStore(), table, {"bronze/orders": driver}, target, increment)
        == INTERPRETED
    )


def test_the_rows_of_the_inputs_count_and_a_third_of_those_of_a_table_that_is_merged_into() -> None:
    assert is_interpreted(MERGED, table_of(60_000), table_of(120_000), None)
    assert not is_interpreted(MERGED, table_of(60_000), table_of(120_001), None)
    assert is_interpreted(REPLACED, table_of(60_000), table_of(1_000_000), None)
    assert not is_interpreted(REPLACED, table_of(None), None, None)


def test_of_an_input_that_is_read_by_its_changes_what_its_commits_added_counts() -> None:
    large = 1_000_000
    assert is_interpreted(MERGED, table_of(large, newest_bytes=100), None, CHANGES)
    assert not is_interpreted(MERGED, table_of(large, newest_bytes=101), None, CHANGES)
    assert not is_interpreted(MERGED, table_of(large, newest_bytes=5_000), None, CHANGES)


def test_few_rows_beside_many_of_a_table_that_tells_its_rows() -> None:
    def table(rows: int | None, size_bytes: int = 4_000_000) -> Snapshot:
        return snapshot([data_file(size_bytes, rows=rows)])

    assert [are_few(size, table(20_000)) for size in (1_000_000, 1_000_001)] == [True, False]
    assert [are_few(1_000, table(rows)) for rows in (10_000, 9_999, None)] == [True, False, False]
    assert [are_few(mib << 20, table(1 << 30, 1 << 40)) for mib in (32, 33)] == [True, False]
