"""Change data with earlier names of columns, also of keys, takes effect as if it had the present ones."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lakehouse import Debezium, Landing, Merge, Table
from lakehouse.lake.lake import Lake
from lakehouse.materialize.run import write_table
from lakehouse_tests.support.example_lake import land, rows_in, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UNSENT = "__debezium_unavailable_value"
RENAMED = {"id": "no", "doc": "text"}


def event(op: str, lsn: int, row: dict[str, Any]) -> dict[str, Any]:
    before, after = (row, None) if op == "d" else (None, row)
    return {"before": before, "after": after, "source": {"lsn": lsn, "ts_ms": lsn}, "op": op}


def rename_columns(lake: Lake, spark: "SparkSession", key: str, names: dict[str, str]) -> None:
    """The table is written again under other names of its columns, in one commit."""
    uri = lake.settings.table_uri(key)
    rows = spark.read.format("delta").load(uri).withColumnsRenamed(names)
    rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(uri)


SOURCE = Landing(
    prefix="landing/docs/",
    format="json",
    schema="id BIGINT, doc STRING",
    derived={"size": "length(doc)"},
    changes=Debezium(),
    new_columns="refuse",
)
BEFORE = Table(key="bronze/docs", source=SOURCE, write=Merge(keys=("id",)))
AFTER = replace(
    BEFORE,
    source=replace(SOURCE, schema="no BIGINT, text STRING", derived={"size": "length(text)"}),
    write=Merge(keys=("no",)),
    renamed=RENAMED,
)


def test_kept_values_and_remembered_deletions_are_known_by_the_present_names(
    lake: Lake, spark: "SparkSession"
) -> None:
    """`lakehouse_tests/long` has the same with each way to rename the columns of the table."""
    load_before(lake, spark)
    rename_columns(lake, spark, BEFORE.key, RENAMED)
    load_after(lake, spark)


def load_before(lake: Lake, spark: "SparkSession") -> None:
    """A value that is kept, a deletion that is remembered, and two rows."""
    first = [
        event("c", 10, {"id": 1, "doc": "one"}),
        event("u", 20, {"id": 1, "doc": UNSENT}),
        event("c", 10, {"id": 2, "doc": "two"}),
        event("d", 30, {"id": 2, "doc": "two"}),
        event("c", 10, {"id": 3, "doc": "three"}),
        event("c", 10, {"id": 4, "doc": "four"}),
    ]
    land(lake, "1.json", first, prefix=SOURCE.prefix)
    write_table(lake, spark, BEFORE)


def load_after(lake: Lake, spark: "SparkSession") -> None:
    """Changes with earlier and present names, some late, into the table with the present ones."""
    second = [
        # Late, between the row and the change that its value is from.
        event("u", 15, {"id": 1, "doc": "ONE"}),
        # Late, before a deletion that is remembered.
        event("u", 20, {"no": 2, "text": "late"}),
        event("u", 20, {"id": 3, "doc": UNSENT}),
        event("u", 30, {"no": 3, "text": UNSENT}),
        event("d", 20, {"id": 4, "doc": "four"}),
        event("c", 10, {"no": 5, "doc": "five", "text": None}),
        event("c", 10, {"no": 6, "doc": "six", "text": "SIX"}),
    ]
    land(lake, "2.json", second, prefix=SOURCE.prefix)
    outcome = write_table(lake, spark, AFTER)
    assert (outcome.rows_quarantined, outcome.rows_superseded) == (1, 2)
    assert rows_of(spark, lake, AFTER.key, "no", "text", "size") == [
        (1, "ONE", 3),
        (3, "three", 5),
        (5, "five", 4),
    ]
    assert rows_in(lake, f"quarantine/{AFTER.key}", "line", "reason") == [
        (7, "different values under two names of a column: doc and text")
    ]
