"""Large CSV files, which Spark reads itself: the same rows and the same quarantine as of small ones."""

import json
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from lakehouse import Append, Csv, Landing, Table
from lakehouse.base.errors import Broken
from lakehouse.lake.lake import Lake
from lakehouse.land.ledger import PlannedBatches
from lakehouse.land.plan import choose_files
from lakehouse.land.spark import text as spark_text
from lakehouse.materialize.run import write_table
from lakehouse_tests.kills import killed_at
from lakehouse_tests.support.example_lake import rows_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEADER = "id;note;city;at;price;day;;paid\n"
LINES = [
    "1;;'Zo''s; b';2026-11-22T08:44:01Z;12,345;2024-02-29;0;true",
    "2;;;;;;;",
    ' 3 ;a "b";-;2026-11-22 08:44:01 Europe/Berlin;1.234,50;2024-02-29 00:00:00;x;FALSE',
    "  ",
    "4;'';'';2026-11-22T08:44;-0,5;;;",
    ";;no id;;;;;",
    "6;;too;many;fields;;;;",
    "7;;few",
    "8;;a;12:00 BST;;;;",
    "9;;a;;1.5.5;;;",
    "10;;a;;;29.02.2024;;",
    "2147483648;;a;;;;;",
    "12;;\xff\xfe;;;;;",
    "13;y;a;;999999,995;;;",
    "14;-;a;2026-11-22T08:44:01 IST;;;;",
]


@pytest.fixture
def all_by_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose_files, "SPARK_READS_FROM_BYTES", 1)
    # Some blocks hold several lines, some none.
    monkeypatch.setattr(spark_text, "BLOCK_BYTES", 64)


def content_of(lines: list[str], end: str = "\n") -> bytes:
    return (HEADER + "".join(f"{line}{end}" for line in lines)).encode("latin-1")


def declared(key: str, **words: Any) -> Table:
    source = Landing(
        prefix=f"landing/{key}/",
        format="csv",
        schema="id INT, town STRING, at TIMESTAMP, price DECIMAL(8, 2), day DATE, paid BOOLEAN",
        required=("id",),
        null_value="-",
        csv=Csv(delimiter=";", quote="'", decimal=","),
        derived={"year": "year(day)"},
        **words,
    )
    return Table(key=f"bronze/{key}", source=source, write=Append(), renamed={"city": "town"})


def loaded(lake: Lake, table: Table) -> tuple[list[Any], list[Any]]:
    """The rows without their origin, and the quarantined rows with their reasons."""
    names = ["id", "town", "at", "price", "day", "paid", "year"]
    rows = [
        (*row, rescued and json.loads(rescued))
        for *row, rescued in rows_in(lake, table.key, *names, "_rescued")
    ]
    refused = rows_in(lake, f"quarantine/{table.key}", "reason", "raw")
    texts = sorted((reason, raw.replace("'", "")[:3]) for reason, raw in refused)
    return sorted(map(repr, rows)), texts


@pytest.mark.usefixtures("all_by_spark")
def test_a_large_file_gives_the_same_rows_and_the_same_quarantine_as_small_ones(
    lake: Lake, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    large = declared("large")
    small = declared("small")
    lake.store.put("landing/large/an export+1 ü.csv", content_of(LINES, "\r\n"))
    for number, line in enumerate(LINES):
        lake.store.put(f"landing/small/{number:02}.csv", content_of([line]))
    by_spark = write_table(lake, spark, large)
    monkeypatch.setattr(choose_files, "SPARK_READS_FROM_BYTES", 2**40)
    by_us = write_table(lake, spark, small)
    assert (by_spark.rows_written, by_spark.rows_quarantined) == (4, 10)
    assert (by_us.rows_written, by_us.rows_quarantined) == (4, 10)
    assert loaded(lake, large) == loaded(lake, small)
    origins = rows_in(lake, large.key, "_source_file", "_source_line", "id")
    assert sorted(origins) == [
        ("landing/large/an export+1 ü.csv", line, id_)
        for line, id_ in [(2, 1), (3, 2), (4, 3), (6, 4)]
    ]
    refused_lines = rows_in(lake, f"quarantine/{large.key}", "line")
    assert sorted(refused_lines) == [(line,) for line in range(7, 17)]


@pytest.mark.long
@pytest.mark.usefixtures("all_by_spark")
def test_small_files_with_line_breaks_in_fields_are_read(lake: Lake, spark: "SparkSession") -> None:
    table = declared("orders", new_columns="add", max_file_bytes=150)
    lake.store.put("landing/orders/a.csv", content_of([LINES[0], "4;;'a\nb';;;;;"]))
    lake.store.put("landing/orders/b.csv", content_of(["5;new;x;;;;;"] * 20))
    lake.store.put("landing/orders/c.csv", content_of(["6;;'x\ny';;;;;", *["7;;;;;;;"] * 20]))
    outcome = write_table(lake, spark, table)
    assert [aside.name for aside in outcome.set_aside] == ["c.csv"]
    assert (
        "only Spark may read it, and it has line breaks inside quotes" in outcome.set_aside[0].why
    )
    assert (outcome.files_read, outcome.rows_written) == (2, 22)
    assert sorted({*rows_in(lake, table.key, "id", "town", "note")}, key=repr) == [
        (1, "Zo's; b", None),
        (4, "a\nb", None),
        (5, "x", "new"),
    ]


@pytest.mark.usefixtures("all_by_spark")
def test_a_file_whose_lines_spark_shows_under_an_unexpected_path_is_read_by_this_process(
    lake: Lake, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file without records would be set aside, and its rows would be missing."""
    monkeypatch.setattr(spark_text, "spark_path", lambda path: f"file:{path}")
    lake.store.put("landing/orders/an export.csv", content_of(LINES[:2]))
    outcome = write_table(lake, spark, declared("orders"))
    assert (outcome.rows_written, outcome.set_aside) == (2, ())


@pytest.mark.usefixtures("all_by_spark")
def test_a_planned_batch_is_not_read_in_utf_8_if_another_encoding_is_declared_since(
    lake: Lake, spark: "SparkSession"
) -> None:
    lake.store.put("landing/orders/a.csv", content_of(LINES[:2]))
    with killed_at(PlannedBatches, "plan", "after"):
        write_table(lake, spark, declared("orders"))
    with pytest.raises(Broken, match="Restore the declaration, load the batch"):
        write_table(lake, spark, declared("orders", encoding="cp1252"))
    assert write_table(lake, spark, declared("orders")).rows_written == 2


PLAIN_TYPES = {
    "id": "BIGINT",
    "note": "STRING",
    "at": "TIMESTAMP",
    "local": "TIMESTAMP_NTZ",
    "day": "DATE",
    "price": "DECIMAL(8, 2)",
    "x": "DOUBLE",
    "f": "FLOAT",
    "t": "TINYINT",
    "ok": "BOOLEAN",
}
# Plain values: their texts in CSV and in JSON.
PLAIN_VALUES: dict[str, list[tuple[str, str]]] = {
    "note": [
        ('"said ""no"", twice"', r'"said \"no\", twice"'),
        (" Zoë ", r'" Zo\u00eb "'),
        ("\ttab\\", r'"\ttab\\"'),
        ("😀", r'"\ud83d\ude00"'),
    ],
    "at": [
        ("2026-11-22T08:44:01.123456789Z", '"2026-11-22T08:44:01.123456789Z"'),
        ('"2026-11-22 08:44:01+05:30"', '"2026-11-22 08:44:01+05:30"'),
        ("2026-11-22", '"2026-11-22"'),
    ],
    "local": [("2026-11-22 08:44", '"2026-11-22 08:44"'), ("0001-01-01", '"0001-01-01"')],
    "day": [("2024-02-29", '"2024-02-29"'), ('"9999-12-31"', '"9999-12-31"')],
    "price": [("0.125", "0.125"), ("-999999.994", '"-999999.994"'), ("-0", "-0")],
    "x": [("1.5e-99", "1.5e-99"), ("0.1", "0.1"), ("123456789012345678", "123456789012345678")],
    "f": [("0.1", "0.1"), ("16777217", "16777217")],
    "t": [("-99", "-99"), ('"7"', "7")],
    "ok": [("true", "true"), ("false", "false")],
}
# Values of a plain form that do not fit: an other day than it seems, or none; too large; year 0.
UNFIT_VALUES = {
    "csv": ["day,2024-02-30", "at,2026-11-22T24:01", "price,999999.995", "day,0000-01-01"],
    "json": [
        'day,"2024-02-30"',
        'at,"2026-11-22T24:01"',
        "price,999999.995",
        'local,"0000-01-01"',
    ],
}


def plain_content(format: str, rows: list[dict[str, str]]) -> bytes:
    if format == "json":
        lines = [
            "{" + ", ".join(f'"{name}": {text}' for name, text in row.items()) + "}" for row in rows
        ]
    else:
        lines = [",".join(row.get(name, "") for name in PLAIN_TYPES) for row in rows]
        lines.insert(0, ",".join(PLAIN_TYPES))
    return "\n".join(lines).encode()


def plain_rows(format: str, count: int) -> list[dict[str, str]]:
    random = Random(count)
    place = ["csv", "json"].index(format)
    rows = list[dict[str, str]]()
    for number in range(count):
        values = {name: random.choice(texts)[place] for name, texts in PLAIN_VALUES.items()}
        missing = random.sample([*values], random.randrange(len(values)))
        rows.append({"id": str(number), **{k: v for k, v in values.items() if k not in missing}})
    return rows


@pytest.mark.parametrize("format", ["csv", "json"])
@pytest.mark.usefixtures("all_by_spark")
def test_plain_lines_that_spark_parses_without_a_judgement_give_the_rows_of_judged_ones(
    lake: Lake, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    schema = ", ".join(f"{name} {type_}" for name, type_ in PLAIN_TYPES.items())
    rows = plain_rows(format, 60)
    unfit = list[dict[str, str]]()
    for number, text in enumerate(UNFIT_VALUES[format], 1):
        name, _, value = text.partition(",")
        unfit.append({"id": str(-number), name: value})
    contents = {
        "plain": plain_content(format, rows),
        "judged": plain_content(format, rows) + b"\n \n",
        "unfit": plain_content(format, [*rows, *unfit]),
    }
    parsed = list[str]()
    parse = spark_text._plain_rows

    def counted(*words: Any) -> Any:
        parsed.append(key)
        return parse(*words)

    monkeypatch.setattr(spark_text, "_plain_rows", counted)
    found = dict[str, list[Any]]()
    for key, content in contents.items():
        source = Landing(prefix=f"landing/{key}/", format=format, schema=schema, required=("id",))
        lake.store.put(f"landing/{key}/a.{format}", content)
        table = Table(key=f"bronze/{key}", source=source, write=Append())
        outcome = write_table(lake, spark, table)
        assert outcome.rows_written == len(rows)
        found[key] = sorted(map(repr, rows_in(lake, table.key, *PLAIN_TYPES, "_source_line")))
    assert parsed == ["plain", "unfit"]
    assert found["plain"] == found["judged"] == found["unfit"]
    refused = rows_in(lake, "quarantine/bronze/unfit", "line", "reason", "raw")
    lines = contents["unfit"].decode().split("\n")[-len(unfit) :]
    first = len(rows) + (2 if format == "csv" else 1)
    assert sorted(refused) == [
        (first + place, "a field does not fit the schema", line) for place, line in enumerate(lines)
    ]
