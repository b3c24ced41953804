"""A value that Spark would load as another one makes its record bad; a plain line has no problem at all."""

import json
import re
from random import Random

import pytest

from lakehouse.declare.landing import Landing
from lakehouse.delta.columns import field_types
from lakehouse.land.plan.json_records import has_misread_value, json_record, plain_line_pattern

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


def is_misread(text: str) -> bool:
    return has_misread_value([json.loads(text)], text, SCHEMA)


@pytest.mark.parametrize("name", GOOD)
def test_a_value_that_is_loaded_as_sent_or_refused_by_spark_is_not_refused_here(name: str) -> None:
    for value in GOOD[name]:
        assert not is_misread(f'{{"{name}": {value}}}'), value


@pytest.mark.parametrize("name", BAD)
def test_a_value_that_would_be_loaded_as_another_one_is_found(name: str) -> None:
    for value in BAD[name]:
        assert is_misread(f'{{"{name}": {value}}}'), value


PLAIN_SCHEMA = (
    "id BIGINT, t TINYINT, ok BOOLEAN, price DECIMAL(8, 2), x DOUBLE, f FLOAT, `a (b)*` STRING, "
    "day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, who STRUCT<name: STRING>, raw BINARY"
)
FIELDS = dict(field_types(PLAIN_SCHEMA))
PLAIN_LANDING = Landing(prefix="landing/x/", format="json", schema=PLAIN_SCHEMA)
PATTERN = re.compile(plain_line_pattern(FIELDS) or "")
PLAIN = [
    "{}",
    ' { "id" : -0 ,\t"ok":true}\t',
    '{"a (b)*":"Zoë {[\'\u2028","price":"1.10","x":1e-99,"f":0.1,"t":-99,"id":null}',
    '{"at":"2026-11-22T08:44:01.123456Z","day":"2024-02-29","local":"2024-02-29 08:00"}',
    '{"at":"2026-11-22 08:44:01+05:30","id":1,"id":2}',
]
NOT_PLAIN = [
    '{"id":1,}',
    '{"id":1}}',
    '{"id":1}\u2028',
    '{"id":1} x',
    '{"id":1},{"id":2}',
    '{"id":01}',
    '{"id":1.0}',
    '{"id":"1"}',
    '{"id":1e2}',
    '{"ID":1}',
    '{"other":1}',
    '{"x":1e999}',
    '{"f":1e39}',
    '{"t":200}',
    '{"price":"1,5"}',
    '{"price":1e9999}',
    '{"at":"12:00"}',
    '{"at":"2026"}',
    '{"at":"2026-11-22T08:44:01 IST"}',
    '{"at":1763800000}',
    '{"a (b)*":"\\ud800"}',
    '{"a (b)*":"a\tb"}',
    '{"a (b)*":1.10}',
    '{"who":{"name":"x","age":1}}',
    "{'id':1}",
    "[]",
]


@pytest.mark.parametrize("line", PLAIN)
def test_a_flat_object_of_declared_fields_is_plain(line: str) -> None:
    assert PATTERN.search(line)


@pytest.mark.parametrize("line", NOT_PLAIN)
def test_any_other_line_is_looked_at_more_closely(line: str) -> None:
    assert PATTERN.search(line) is None


def test_no_drawn_line_is_plain_that_has_a_problem() -> None:
    random = Random(2026)
    tokens = ['"', "{", "}", "[", "]", ",", ":", " ", "\\", "1", "e9", ".5", "-", "null", "x"]
    plain = 0
    for _ in range(20_000):
        line = random.choice(PLAIN)
        for _ in range(random.randrange(3)):
            at = random.randrange(len(line) + 1)
            line = line[:at] + random.choice(tokens) + line[at + random.randrange(3) :]
        if PATTERN.search(line):
            plain += 1
            json.loads(line)
            record = json_record(1, line.encode(), PLAIN_LANDING)
            assert (record.problem, record.undeclared, record.event) == (None, None, None), line
    assert plain > 5_000


def test_a_wide_table_and_one_without_a_plain_value_have_no_pattern() -> None:
    assert plain_line_pattern({"who": "STRUCT<name: STRING>"}) is None
    assert plain_line_pattern({f"c{number}": "INT" for number in range(101)}) is None
