"""A value that Postgres did not send with an update, because it is large and did not change, is the one from before."""

from typing import Any

from pyspark.sql import SparkSession

from lakehouse import Debezium, Landing, Merge, Table
from lakehouse.lake.lake import Lake
from lakehouse.materialize.run import write_table
from lakehouse_tests.support.example_lake import land, rows_in

UNSENT = "__debezium_unavailable_value"
BYTES = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="


def event(op: str, lsn: int, id_: int, n: int, doc: str | None, **more: Any) -> dict[str, Any]:
    row = {"id": id_, "n": n, "doc": doc, "data": "AQI=", "tags": ["a"], **more}
    before, after = (row, None) if op == "d" else (None, row)
    return {"before": before, "after": after, "source": {"lsn": lsn, "ts_ms": lsn}, "op": op}


def table_of(write: Merge) -> Table:
    schema = "id BIGINT, n INT, doc STRING, data BINARY, tags ARRAY<STRING>"
    source = Landing(
        prefix="landing/docs/",
        format="json",
        schema=schema,
        required=("data",),
        derived={"size": "length(doc)"},
        changes=Debezium(),
    )
    return Table(key="bronze/docs", source=source, write=write)


def test_an_unsent_value_is_the_one_before_it_in_any_order(lake: Lake, spark: SparkSession) -> None:
    table = table_of(Merge(keys=("id",)))
    load_in_two_batches(lake, spark, table)
    found = rows_in(lake, table.key, "id", "n", "doc", "size")
    assert found == [(1, 2, "ONE MORE", 8), (2, 3, "two", 3), (6, 1, None, None)]
    assert rows_in(lake, table.key, "data", "tags")[0] == (b"\x01\x02", ["a"])


def load_in_two_batches(lake: Lake, spark: SparkSession, table: Table) -> None:
    """Updates with unsent values: in a batch, across both, and with a change between the two that comes last."""
    first = [
        event("c", 10, 1, 1, "one"),
        event("u", 20, 1, 2, UNSENT, data=BYTES, tags=[UNSENT]),
        event("c", 10, 2, 1, "two"),
        event("c", 10, 3, 1, "three"),
        event("u", 10, 4, 1, UNSENT),
        event("d", 20, 3, 1, None),
        event("u", 30, 3, 3, UNSENT),
        event("c", 10, 5, 1, UNSENT),
        event("c", 10, 6, 1, None),
        event("u", 20, 6, 2, UNSENT),
    ]
    land(lake, "1.json", first, prefix=table.landing.prefix)
    assert write_table(lake, spark, table).rows_quarantined == 4
    second = [
        event("u", 20, 2, 2, UNSENT),
        event("u", 30, 2, 3, UNSENT, data=BYTES),
        # Late, and between the row and the change that its value is from.
        event("u", 15, 1, 9, "ONE MORE"),
    ]
    land(lake, "2.json", second, prefix=table.landing.prefix)
    assert write_table(lake, spark, table).rows_quarantined == 0
    # None of them was known: no older row, a deletion before it, an insert, and a value that was null.
    reasons = rows_in(lake, f"quarantine/{table.key}", "line", "reason")
    assert {line for line, _ in reasons} == {5, 7, 8, 10}
    assert all(reason.startswith(f"field doc was not sent ({UNSENT})") for _, reason in reasons)


def test_a_marked_row_keeps_what_its_last_changes_left_out(lake: Lake, spark: SparkSession) -> None:
    table = table_of(Merge(keys=("id",), deletes="soft"))
    first = [
        event("c", 10, 1, 1, "one"),
        event("c", 10, 2, 1, "two"),
        event("c", 10, 3, 1, "three"),
        event("d", 20, 3, 1, None),
    ]
    land(lake, "1.json", first, prefix=table.landing.prefix)
    write_table(lake, spark, table)
    second = [
        event("u", 20, 1, 2, UNSENT),
        event("u", 20, 2, 2, UNSENT),
        event("d", 30, 2, 2, None, data=None, tags=None),
        # The row was deleted, and the insert before this update is missing.
        event("u", 30, 3, 3, UNSENT),
    ]
    land(lake, "2.json", second, prefix=table.landing.prefix)
    assert write_table(lake, spark, table).rows_quarantined == 1
    assert rows_in(lake, table.key, "id", "n", "doc", "size", "_deleted")[:2] == [
        (1, 2, "one", 3, False),
        (2, 2, "two", 3, True),
    ]
    # A late change counts if it is newer than the one that the kept value is from; and one may be told again.
    third = [
        event("u", 5, 1, 7, "OLD"),
        event("u", 15, 1, 9, "ONE MORE"),
        event("u", 20, 1, 2, UNSENT),
    ]
    land(lake, "3.json", third, prefix=table.landing.prefix)
    assert write_table(lake, spark, table).rows_quarantined == 0
    assert rows_in(lake, table.key, "id", "n", "doc")[0] == (1, 2, "ONE MORE")
