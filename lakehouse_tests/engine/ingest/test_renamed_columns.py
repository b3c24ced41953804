"""Landed files with earlier names of columns keep loading, mixed with files of the present names."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lakehouse import Append, Landing, Table
from lakehouse.engine.ingest import commit_rows
from lakehouse.engine.ingest.quarantine.retry import retry
from lakehouse.engine.ingest.write import write_table
from lakehouse.engine.lake import Lake, TableSession
from lakehouse_tests.engine.example import rows_in
from lakehouse_tests.kills import killed_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

type_of_rows = Sequence[dict[str, Any]]
PREFIX = "landing/shops/"
RENAMED = {"city": "town", "cost": "price"}
CLASH = "different values under two names of a column: city and town"
TWO_NAMES = (
    "its header is 'id,city,town' and not id,town,price; it has two names of town. Land the file"
    " with one of them"
)
UNFIT = "a field does not fit the schema"


def as_json(rows: type_of_rows) -> bytes:
    return "\n".join(map(json.dumps, rows)).encode()


def tables(format: str) -> tuple[Table, Table]:
    """A table with a city and a cost for each shop, and its declaration with other names."""
    source = Landing(
        prefix=PREFIX,
        format=format,
        schema="id BIGINT, city STRING, cost DECIMAL(10, 2)",
        required=("cost",),
        derived={"initial": "left(city, 1)"},
    )
    before = Table(key="bronze/shops", source=source, write=Append())
    after = replace(
        source,
        schema="id BIGINT, town STRING, price DECIMAL(10, 2)",
        required=("id",),
        derived={"initial": "left(town, 1)"},
    )
    return before, replace(before, source=after, renamed=RENAMED)


def rename_columns(lake: Lake, spark: "SparkSession", key: str, names: dict[str, str]) -> None:
    """The table is written again under other names of its columns, in one commit."""
    uri = lake.settings.table_uri(key)
    rows = spark.read.format("delta").load(uri).withColumnsRenamed(names)
    rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(uri)


def test_old_and_new_files_load_mixed_and_a_staged_batch_and_retried_lines_follow(
    lake: Lake, spark: "SparkSession"
) -> None:
    """`lakehouse_tests/long` has the other formats."""
    load_old_and_new_files(lake, spark, "json", as_json)


def load_old_and_new_files(
    lake: Lake, spark: "SparkSession", format: str, as_file: Callable[[type_of_rows], bytes]
) -> None:
    """A value is right, or its record is in quarantine, which keeps each line as it was sent."""
    before, after = tables(format)
    mixed = [
        # Under the earlier names, the present ones, and one of each.
        [{"id": 1, "city": "Rome", "cost": "1.10"}],
        [{"id": 2, "town": "Oslo", "price": "2"}],
        [{"id": 3, "city": "Bonn", "price": "3"}, {"id": None, "city": "Lima", "price": "1"}],
        [{"id": 4, "town": "Kiel", "cost": "dear"}, {"id": 5, "town": None, "cost": None}],
    ]

    def land(name: str, rows: type_of_rows) -> None:
        lake.store.put(f"{PREFIX}{name}.{format}", as_file(rows))

    land("0", [{"id": 6, "city": "Pisa", "cost": "6"}, {"id": 8, "city": "Metz", "cost": None}])
    write_table(lake, spark, before)
    # Its second line is refused, and is a row by the other declaration.
    land("1", [{"id": 7, "city": "Graz", "cost": "7"}, {"id": 13, "city": "Ulm", "cost": None}])
    with killed_at(commit_rows, "write_rows", "before"):
        write_table(lake, spark, before)
    rename_columns(lake, spark, before.key, RENAMED)
    for number, rows in enumerate(mixed):
        land(f"2-{number}", rows)
    outcome = write_table(lake, spark, after)
    assert (outcome.rows_written, outcome.rows_quarantined, outcome.set_aside) == (6, 2, ())

    done = retry(TableSession(lake=lake, spark=spark, table=after), [], dry_run=False)
    assert (done.lines, done.left) == (3, {})
    twice = [
        {"id": 9, "city": "Linz", "town": "Linz"},
        {"id": 10, "city": "Linz", "town": "Wels"},
        {"id": 11, "city": None, "town": "Wels"},
        {"id": 12, "city": "Enns", "town": None},
    ]
    land("3", twice)
    outcome = write_table(lake, spark, after)
    assert outcome.rows_rescued == 0
    rows = [
        (1, "Rome", "1.10", "R"),
        (13, "Ulm", None, "U"),
        (2, "Oslo", "2.00", "O"),
        (3, "Bonn", "3.00", "B"),
        (5, None, None, None),
        (6, "Pisa", "6.00", "P"),
        (7, "Graz", "7.00", "G"),
        (8, "Metz", None, "M"),
    ]
    reasons = ["required field id is missing", UNFIT]
    if format != "csv":
        rows += [(9, "Linz", None, "L"), (11, "Wels", None, "W"), (12, "Enns", None, "E")]
        reasons += [CLASH]
        raw = [json.dumps(mixed[2][1]), json.dumps(mixed[3][0]), json.dumps(twice[1])]
    else:
        reasons += [TWO_NAMES]
        raw = [",Lima,1", "4,Kiel,dear", None]
    found = rows_in(lake, after.key, "id", "town", "price", "initial")
    assert [(*row[:2], row[2] and str(row[2]), row[3]) for row in found] == sorted(rows, key=str)
    entries = rows_in(lake, f"quarantine/{after.key}", "reason", "raw")
    assert entries == sorted(zip(reasons, raw, strict=True), key=str)
