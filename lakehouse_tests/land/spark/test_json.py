"""Large JSON files, which Spark reads itself: the same rows and quarantine as of small ones."""

import json
from typing import TYPE_CHECKING, Any

import pytest

from lakehouse import Append, Landing, Table
from lakehouse.lake.lake import Lake
from lakehouse.land.plan import choose_files
from lakehouse.land.spark import text as spark_text
from lakehouse.materialize.run import write_table
from lakehouse.spark import frames
from lakehouse_tests.bad_input.corpus import JSON_LINES
from lakehouse_tests.kills import killed_at
from lakehouse_tests.support.example_lake import rows_in, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = (
    "id BIGINT, at TIMESTAMP, state STRING, x DOUBLE, f FLOAT, t TINYINT, price DECIMAL(8, 2), "
    "day DATE, local TIMESTAMP_NTZ, ok BOOLEAN, who STRUCT<name: STRING, at: TIMESTAMP>, "
    "parts ARRAY<DECIMAL(8, 2)>"
)
SCHEMA_NAMES = ["id", "at", "state", "x", "f", "t", "price", "day", "local", "ok", "who", "parts"]
ADDED = ["town", "n", "extra", "note"]
GOOD = [
    '{"id":1,"at":"2026-11-22T08:44:01Z","state":"new","x":0.1,"f":1.5,"t":-128,"price":1.10}',
    '{"id":2,"at":1763800000,"price":"1,234.50","day":"2024-02-29","local":"2024-02-29 08:00"}',
    '{"id":3,"who":{"name":"Zoë","at":"2024-02-29T00:00:00 Europe/Berlin"},"parts":[1,"2.5",3.25]}',
    '{"id":4,"x":"Infinity","f":"-Infinity","ok":true,"state":null}',
    '{"id":5,"state":{"a":[1,2]}}',
    '{"id":6,"state":12345678901234567890123}',
    '{"id":7,"state":0.85,"day":"2024-02-29T00:00:00Z"}',
    '{"id":8,"town":"Ulm","old_state":"x"}',
    '{"id":9,"state":"same","old_state":"same"}',
    '{"id":10,"state":null,"old_state":1.5,"n":1.0}',
    '{"id":11,"extra":{"n":1},"town":null,"who":{"name":"a","age":7}}',
    '{"id":12,"note":"1e2000, 2","state":"12e45678"}',
    '{"id":1,"id":13}',
    '{"id":14,"state":0.5,"price":1.0,"x":1.2345678901234567e+00}',
    '{"id":15,"n":2.7755575615628914e-17,"extra":"1e400, 9007199254740993e0"}',
    '{"id":16,"price":1.5,"note":"sha256:1e5000, 1e5000"}',
    '{"id":17,"n":3.4028235e38}',
    '{"id":18,"state":' + '{"a":' * 890 + "1" + "}" * 891,
]
BAD = [
    '{"id":20,"at":"12:00"}',
    '{"id":20,"at":"2026"}',
    '{"id":20,"at":"2026-11-22T08:44:01 IST"}',
    '{"id":20,"at":1763800000000}',
    '{"id":20,"at":1.5}',
    '{"id":20,"day":"29.02.2024"}',
    '{"id":20,"t":200}',
    '{"id":20,"x":1e999}',
    '{"id":20,"f":1e39}',
    '{"id":20,"price":"1,5"}',
    '{"id":20,"price":1e99999999}',
    '{"id":20,"price":"1e99999999"}',
    '{"id":20,"parts":["1e99999999"]}',
    '{"id":20,"who":{"at":"2026-11-22T08:44:01 IST"}}',
    '{"id":20,"state":"a","old_state":"b"}',
    '{"id":20,"oldest":"a","old_state":"b"}',
    '{"state":"no id"}',
    '{"id":20},0]',
    '{"id":20}],[{"id":21}',
    "{'id':20}",
]
# Lines with a number that a variant changes.
ROUNDED = [
    '{"id":30.0,"state":0.5}',
    '{"id":30,"at":1763800000.0,"state":0.5}',
    '{"id":30,"state":1e400,"note":"1e400"}',
    '{"id":30,"state":9007199254740993e0,"note":"9007199254740993e0"}',
    '{"id":30,"note":[{"a":1e-400}]}',
    '{"id":30,"n":111111111111111111111111111111111111111}',
]


@pytest.fixture
def all_by_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose_files, "SPARK_READS_FROM_BYTES", 1)
    # Some blocks hold several lines, some none.
    monkeypatch.setattr(spark_text, "BLOCK_BYTES", 512)


def declared(key: str, **words: Any) -> Table:
    source = Landing(
        prefix=f"landing/{key}/", format="json", schema=SCHEMA, required=("id",), **words
    )
    renamed = {"old_state": "state", "oldest": "state"}
    return Table(key=f"bronze/{key}", source=source, write=Append(), renamed=renamed)


def loaded(spark: "SparkSession", lake: Lake, table: Table) -> list[tuple[object, ...]]:
    """The rows by their ids, without their origins; JSON columns as values."""
    names = SCHEMA_NAMES + [name for name in ADDED if table.landing.new_columns == "add"]
    rows = rows_of(spark, lake, table.key, *names, "_rescued")
    texts = [(*row, rescued and json.loads(rescued)) for *row, rescued in rows]
    return sorted(texts, key=str)


@pytest.mark.parametrize("new_columns", ["rescue", pytest.param("add", marks=pytest.mark.long)])
@pytest.mark.usefixtures("all_by_spark")
def test_a_large_file_gives_the_same_rows_and_the_same_quarantine_as_small_ones(
    lake: Lake, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch, new_columns: str
) -> None:
    lines = [f"\ufeff{GOOD[0]}", *GOOD[1:], *BAD, "", " \t"]
    # At the start of a file, a mark is skipped, and an array is read as a whole.
    not_first = {b"[1]", b'\xef\xbb\xbf{"id":1}'}
    corpus = {line for line, _ in JSON_LINES.values() if b"\0" not in line} - not_first
    large = declared("large", new_columns=new_columns)
    small = declared("small", new_columns=new_columns)
    content = [*map(str.encode, lines), *sorted(corpus)]
    only_large = [*not_first, *map(str.encode, ROUNDED)]
    lake.store.put("landing/large/an export+1 ü.json", b"\r\n".join([*content, *only_large]))
    for number, line in enumerate(content):
        lake.store.put(f"landing/small/{number:03}.json", line)
    by_spark = write_table(lake, spark, large)
    monkeypatch.setattr(choose_files, "SPARK_READS_FROM_BYTES", 2**40)
    by_us = write_table(lake, spark, small)
    assert by_spark.rows_quarantined == by_us.rows_quarantined + len(only_large)
    assert {*by_spark.columns_added} == {*by_us.columns_added}
    assert loaded(spark, lake, large) == loaded(spark, lake, small)
    refused = {raw.partition("\\")[0]: why for _, why, raw in quarantined(lake, small)}
    lines_of_large = quarantined(lake, large)
    assert {raw.partition("\ufffd")[0].partition("\\")[0] for *_, raw in lines_of_large} >= {
        *refused
    }
    bad = [(len(GOOD) + place, refused[line], line) for place, line in enumerate(BAD, start=1)]
    assert lines_of_large[: len(BAD)] == bad


def quarantined(lake: Lake, table: Table) -> list[tuple[int, str, str]]:
    """The quarantined lines with their numbers and reasons, in order."""
    return sorted(rows_in(lake, f"quarantine/{table.key}", "line", "reason", "raw"))


@pytest.mark.usefixtures("all_by_spark")
def test_a_killed_load_of_good_lines_is_repeated_once(lake: Lake, spark: "SparkSession") -> None:
    table = declared("orders")
    for number, good in enumerate(GOOD):
        lake.store.put(f"landing/orders/{number:02}.json", f"{good}\n".encode() * 3)
    for when in ("before", "after"):
        with killed_at(frames, "write_frame", when):
            write_table(lake, spark, table)
    write_table(lake, spark, table)
    rows = rows_in(lake, table.key, "id", "_source_line")
    assert sorted(rows) == [(id_, line) for id_ in range(1, 19) for line in (1, 2, 3)]
