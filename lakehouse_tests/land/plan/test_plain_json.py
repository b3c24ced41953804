"""A plain line is one that a record of the same line has no problem with, and no undeclared field."""

import json
import re
from random import Random

import pytest

from lakehouse.declare.landing import Landing
from lakehouse.delta.columns import field_types
from lakehouse.land.plan.json_records import json_record, plain_line_pattern

SCHEMA = (
    "id BIGINT, t TINYINT, ok BOOLEAN, price DECIMAL(8, 2), x DOUBLE, f FLOAT, `a (b)*` STRING, "
    "day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, who STRUCT<name: STRING>, raw BINARY"
)
FIELDS = dict(field_types(SCHEMA))
LANDING = Landing(prefix="landing/x/", format="json", schema=SCHEMA)
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
            record = json_record(1, line.encode(), LANDING, FIELDS)
            assert (record.problem, record.undeclared, record.event) == (None, None, None), line
    assert plain > 5_000


def test_a_wide_table_and_one_without_a_plain_value_have_no_pattern() -> None:
    assert plain_line_pattern({"who": "STRUCT<name: STRING>"}) is None
    assert plain_line_pattern({f"c{number}": "INT" for number in range(101)}) is None
