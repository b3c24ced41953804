"""A value that Spark would load as another one makes its record bad; any other value does not."""

import json

import pytest

from lakehouse.declare.change_sources import Debezium
from lakehouse.declare.landing import Landing
from lakehouse.land.plan.json_records import has_misread_value

SCHEMA = (
    "day DATE, price DECIMAL(10, 2), small TINYINT, at TIMESTAMP, ratio DOUBLE, share FLOAT, "
    "one STRUCT<price: DECIMAL(10, 2)>, many ARRAY<DECIMAL(10, 2)>, "
    "by MAP<STRING, DECIMAL(10, 2)>, name STRING"
)
LANDING = Landing(prefix="landing/x/", format="json", schema=SCHEMA)
GOOD = {
    "day": ['"2024-01-15"', '"2024-01-16T00:00:00.000Z"', '"2024-1-5 00:00"', "7", "null"],
    "price": ["1.5", '"1,000.25"', '"1"', "1e3", '"1e999"', '"dear"', "0.0"],
    "small": ["-128", "127", '"x"'],
    "at": ['"2024-01-15T05:00:00Z"', '"2024-01"', "1700000000", "-62135596800"],
    "ratio": ["1.7976931348623157e308", '"Infinity"', "1"],
    "share": ["1e20", '"-Infinity"', '"x"'],
    "one": ['{"price": 1.5e1}', "7"],
    "many": ["[2.5, null]"],
    "by": ['{"1e5000": 3}'],
    "name": ['"1e5000"', '"1,5"', '"T10"'],
    "other": ['", 1e5000"', '"10:30"'],
}
BAD = {
    "day": ['"20240115"', '"7"', '"2024-01"', '"2024-01-15T23:30:00-08:00"', '"2024-01-15 x"'],
    "price": [
        "1e400000000",
        "1e-400000000",
        '"1e-400000000"',
        r'"1\u0065-400000000"',
        '"1,5"',
        '"1,234"',
        r'"1\u002c5"',
    ],
    "small": ["128", "200", "-129"],
    "at": [
        '"20240"',
        '"2024 "',
        '"T10"',
        "1700000000000",
        '"10:30:00"',
        '"T10:30"',
        r'"\t10:30"',
        "253402300800",
        '"x"',
    ],
    "ratio": ["1e400", "-1e400", "1" * 400],
    "share": ["3.5e38", "9" * 39],
    "one": ['{"price": 1e400000000}'],
    "many": ['[1, "1e-400000000"]', "[[1e-400000000]]"],
    "by": ['{"a":1E+400000000}', '{"a":"1e5000"}'],
    "other": ["1e5000"],
}


def is_misread(text: str, landing: Landing = LANDING) -> bool:
    return has_misread_value(json.loads(text), text, landing)


@pytest.mark.parametrize("name", GOOD)
def test_a_value_that_is_loaded_as_sent_or_refused_by_spark_is_not_refused_here(name: str) -> None:
    for value in GOOD[name]:
        assert not is_misread(f'{{"{name}": {value}}}'), value


@pytest.mark.parametrize("name", BAD)
def test_a_value_that_would_be_loaded_as_another_one_is_found(name: str) -> None:
    for value in BAD[name]:
        assert is_misread(f'{{"{name}": {value}}}'), value


def test_both_rows_of_an_event_are_checked() -> None:
    landing = Landing(prefix="landing/x/", format="json", schema=SCHEMA, changes=Debezium())
    assert is_misread('{"op":"d","before":{"price":"1,5"},"after":null}', landing)
    assert is_misread('{"op":"u","before":{"price":1e-5000},"after":{"price":1}}', landing)
    assert not is_misread('{"op":"u","before":null,"after":{"price":1},"price":"1,5"}', landing)
    unwrapped = Landing(
        prefix="landing/x/", format="json", schema=SCHEMA, changes=Debezium(unwrapped=True)
    )
    assert is_misread('{"price":"1,5","__op":"u"}', unwrapped)
