"""Loads of tables that were created again, and of Overwrite tables."""

import json

from pyspark.sql import SparkSession

from lakehouse import Landing, Overwrite, Table
from lakehouse.base.reasons import Reason
from lakehouse.lake.lake import Lake
from lakehouse.materialize.run import write_table
from lakehouse_tests.land.test_run import QUARANTINE, SOURCE, declared
from lakehouse_tests.support.example_lake import event, events, land, rows_in

codes = Table(
    key="bronze/codes",
    source=Landing(
        prefix="landing/codes/",
        format="csv",
        schema="code STRING, n INT, name STRING",
        null_value="NA",
        required=("code",),
    ),
    write=Overwrite(),
)


def test_a_table_made_anew_by_another_declaration_loses_no_line(
    lake: Lake, spark: SparkSession
) -> None:
    """Its quarantine knows the number of each batch: what is refused only now stands there, too, and nothing twice."""
    # The text of the last line is staged as another where n is a STRING.
    stateless, unfit = {"id": 2, "at": "2013-01-01T05:00:00Z"}, '{"id": "x", "n": 1.10}'
    schema = f"{SOURCE.schema}, n STRING"
    strict = declared(schema=schema, required=("id", "state"))
    land(lake, "a.json", [event(1, 5, "new"), "nope a", stateless, unfit])
    write_table(lake, spark, events)
    land(lake, "b.json", [event(3, 5, "new"), "nope b"])
    write_table(lake, spark, events)
    lake.store.delete([file.name for file in lake.store.list(events.key)])
    land(lake, "c.json", [event(4, 5, "new")])
    outcome = write_table(lake, spark, strict)
    assert (outcome.files_read, outcome.rows_written) == (3, 3)
    assert write_table(lake, spark, strict).reason == Reason.NOTHING_LANDED
    rows = [
        (number, f"landing/events/{name}.json") for number, name in ((1, "a"), (3, "b"), (4, "c"))
    ]
    refused = [("nope a", 1), ("nope b", 2), (unfit, 1), (json.dumps(stateless), 1)]
    assert rows_in(lake, events.key, "id", "_source_file") == rows
    assert rows_in(lake, QUARANTINE, "raw", "batch") == refused

    lake.store.delete(
        [
            file.name
            for folder in (events.key, "_lakehouse/ingest")
            for file in lake.store.list(folder)
        ]
    )
    land(lake, "d.json", ["nope d"])
    write_table(lake, spark, strict)
    assert rows_in(lake, events.key, "id", "_source_file") == rows
    assert rows_in(lake, QUARANTINE, "raw", "batch") == sorted([*refused, ("nope d", 1)], key=str)


def test_an_overwrite_holds_what_the_newest_file_does_that_has_a_row(
    lake: Lake, spark: SparkSession
) -> None:
    land(lake, "1.csv", ["code,n,name", "A,1,one"], prefix="landing/codes/")
    land(lake, "2.csv", ["code,n,name", "B,2,two"], prefix="landing/codes/")
    first = write_table(lake, spark, codes)
    assert [aside.name for aside in first.set_aside] == ["1.csv"]
    land(lake, "note.md", [], prefix="landing/codes/")
    write_table(lake, spark, codes)
    assert rows_in(lake, codes.key, "code") == [("B",)]

    land(lake, "3.csv", ["code,n,name", "C,3,three"], prefix="landing/codes/")
    for name, lines in (
        ("4", []),
        ("5", ["n,code", "3,C"]),
        ("6", ["code,n,name", "D,x,4", "NA,5,five"]),
        ("7", ["code,n,name"]),
    ):
        land(lake, f"{name}.csv", lines, prefix="landing/codes/")
    outcome = write_table(lake, spark, codes)
    assert rows_in(lake, codes.key, "code") == [("C",)]
    assert [aside.name for aside in outcome.set_aside] == ["7.csv", "6.csv", "5.csv", "4.csv"]
    found = rows_in(lake, "quarantine/bronze/codes", "source_file", "line")
    assert found == [
        (f"landing/codes/{name}.csv", line)
        for name, line in (("4", None), ("5", None), ("6", 2), ("6", 3), ("6", None), ("7", None))
    ]
    land(lake, "6.csv", ["code,n,name", "E,5,five"], prefix="landing/codes/")
    write_table(lake, spark, codes)
    assert rows_in(lake, codes.key, "code") == [("E",)]
