"""Values that Spark would read as another one, and partition values that a table cannot hold, go to quarantine."""

import json
from datetime import date, datetime
from decimal import Decimal

import pytest
from pyspark.sql import SparkSession

from lakehouse import Append, Csv, Landing, Table
from lakehouse.lake.lake import Lake
from lakehouse.materialize.run import write_table
from lakehouse_tests.land.plan.test_json_records import BAD as BAD_JSON
from lakehouse_tests.land.plan.test_json_records import SCHEMA as JSON_SCHEMA
from lakehouse_tests.support.example_lake import rows_in, rows_of

TYPED = "id BIGINT, day DATE, price DECIMAL(10, 2), small TINYINT, at TIMESTAMP, ratio DOUBLE, share FLOAT"
TYPED_ROWS = [
    (
        1,
        date(2024, 1, 15),
        Decimal("1.50"),
        -128,
        datetime(2024, 1, 15, 5),
        100.0,
        100000002004087734272.0,
    ),
    (
        2,
        date(2024, 1, 16),
        Decimal("1000.25"),
        127,
        datetime(2023, 11, 14, 22, 13, 20),
        float("inf"),
        None,
    ),
    (
        3,
        date(1, 1, 1),
        None,
        None,
        datetime(9999, 12, 31, 23, 59, 59, 999_999),
        None,
        float("-inf"),
    ),
]
GOOD_JSON = [
    '{"id": 1, "day": "2024-01-15", "price": 1.5, "small": -128, "at": "2024-01-15T05:00:00Z", "ratio": 100.0, "share": 1e20}',
    '{"id": 2, "day": "2024-01-16T00:00:00.000Z", "ratio": "Infinity", "price": "1,000.25", "small": 127, "at": 1700000000}',
    '{"id": 3, "day": "0001-01-01", "at": "9999-12-31T23:59:59.999999Z", "share": "-Infinity", "one": {"price": 1.5e1}, "many": [2.5], "by": {"1e5000": 3}}',
]
GOOD_CSV = [
    "id;day;price;small;at;ratio;share",
    "1;2024-01-15;1.5;-128;2024-01-15 05:00:00;1e2;1e20",
    "2;2024-01-16 00:00:00;1,000.25;127;2023-11-14T22:13:20Z;Inf;",
    "3;0001-01-01;;;9999-12-31T23:59:59.999999Z;;-Inf",
]
# Values that stand for another one, by field.
BAD_CSV = {
    "day": [
        "10000-01-01",
        "0000-12-31",
        "202401",
        '"45306"',
        "2024-01",
        "2024-01-15 - 2024-02-03",
        '"2024-01-15T23:30:00"',
    ],
    "price": ["1,5", '"1,234"', "1e400000000"],
    "small": ["200"],
    "at": [
        "10000-01-01T00:00:00Z",
        "9999-12-31T23:00:00-02:00",
        "10:30:00",
        "T10:30",
        " 20240",
        "T10",
    ],
    "ratio": ["100.00D", "12f", "0x1p3", "1e400", f"-{'9' * 400}"],
    "share": ["3.5e38"],
}
READ_AS_ANOTHER: dict[str, tuple[str, list[str], list[str]]] = {
    "json": (
        f"id BIGINT, {JSON_SCHEMA}",
        GOOD_JSON,
        [f'{{"id": 3, "{name}": {value}}}' for name, each in BAD_JSON.items() for value in each],
    ),
    "csv": (
        TYPED,
        GOOD_CSV,
        [
            f"3;{';'.join(value if field == name else '' for field in BAD_CSV)}"
            for name, values in BAD_CSV.items()
            for value in values
        ],
    ),
}


@pytest.mark.parametrize("name", ["json", pytest.param("csv", marks=pytest.mark.long)])
def test_a_misread_value_goes_to_quarantine(lake: Lake, spark: SparkSession, name: str) -> None:
    schema, good, bad = READ_AS_ANOTHER[name]
    source = Landing(
        prefix="landing/typed/",
        format=name,
        schema=schema,
        csv=Csv(delimiter=";") if name == "csv" else Csv(),
    )
    lake.store.put(f"landing/typed/a.{name}", "\n".join([*good, *bad]).encode())
    write_table(lake, spark, Table(key="bronze/typed", source=source, write=Append()))
    names = ("id", "day", "price", "small", "at", "ratio", "share")
    assert rows_of(spark, lake, "bronze/typed", *names) == TYPED_ROWS
    if name == "json":
        nested = (3, Decimal("15.00"), [Decimal("2.50")], {"1e5000": Decimal(3)})
        assert rows_of(spark, lake, "bronze/typed", "id", "one.price", "many", "by")[-1] == nested
    refused = [(line, "a field does not fit the schema") for line in bad]
    assert rows_in(lake, "quarantine/bronze/typed", "raw", "reason") == sorted(refused, key=str)


def test_values_that_no_partition_holds_go_to_quarantine(lake: Lake, spark: SparkSession) -> None:
    source = Landing(
        prefix="landing/by/",
        format="json",
        schema="id BIGINT, state STRING",
        required=("state",),
        derived={
            "rest": "substring(state, 2)",
            "due": "date_add(date'9999-12-31', IF(state = 'NYC', 1, 0))",
        },
    )
    texts = ("NY", "", "__HIVE_DEFAULT_PARTITION__", "N", "NYC")
    lines = [json.dumps({"id": number, "state": text}) for number, text in enumerate(texts, 1)]
    lake.store.put("landing/by/a.json", "\n".join(lines).encode())
    write_table(
        lake,
        spark,
        Table(key="bronze/by", source=source, write=Append(partition_by=("state", "rest"))),
    )
    assert rows_in(lake, "bronze/by", "id", "state", "rest") == [(1, "NY", "Y")]
    assert rows_in(lake, "quarantine/bronze/by", "raw", "reason") == [
        (lines[1], "partition field state is empty"),
        (lines[2], "partition field state is __HIVE_DEFAULT_PARTITION__, a word for null"),
        (lines[3], "partition field rest is empty"),
        (lines[4], "derived due is not in the years 1 to 9999"),
    ]
