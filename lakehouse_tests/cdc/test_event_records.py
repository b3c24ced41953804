"""Records of Debezium's events, as a load reads and checks them."""

from dataclasses import replace

import pytest

from lakehouse.declare.landing import Debezium, Landing
from lakehouse.land.plan.file_text import read_records
from lakehouse.land.plan.json_records import json_record
from lakehouse_tests.land.plan.test_file_text import JSON, LIMIT
from lakehouse_tests.land.plan.test_json_records import LANDING
from lakehouse_tests.land.plan.test_records import JSON as SHOPS
from lakehouse_tests.land.plan.test_records import beside

SHOP, PLAIN = (replace(SHOPS, changes=Debezium(unwrapped=unwrapped)) for unwrapped in (False, True))


@pytest.mark.parametrize(
    ("line", "unwrapped", "is_bad"),
    [
        ('{"op":"d","before":{"price":"1,5"},"after":null}', False, True),
        ('{"op":"d","before":{"day":"20240115"},"after":null}', False, True),
        ('{"op":"u","before":{"price":1e-5000},"after":{"price":1}}', False, True),
        ('{"op":"u","before":{"share":9e39},"after":{"price":1}}', False, True),
        ('{"op":"u","before":null,"after":{"price":1},"price":"1,5"}', False, False),
        ('{"price":"1,5","__op":"u"}', True, True),
        ('{"day":"20240115","__op":"u"}', True, True),
    ],
)
def test_both_rows_of_an_event_are_checked(line: str, unwrapped: bool, is_bad: bool) -> None:
    landing = replace(LANDING, changes=Debezium(unwrapped=unwrapped))
    record = json_record(1, line.encode(), landing)
    assert (record.problem is not None) == is_bad


@pytest.mark.parametrize(
    ("line", "staged"),
    {
        "before and after": (
            '{"before":{"id":1,"name":1.10},"after":{"name":2.50}}',
            '{"before": {"id": 1, "name": "1.10"}, "after": {"name": "2.50"}}',
        ),
        "with its schema": (
            '{"schema":{},"payload":{"after":{"name":1e2}}}',
            '{"after": {"name": "1e2"}}',
        ),
        "a tombstone": ("null", "null"),
        "a deletion": (
            '{"op":"d","before":{"id":1},"after":null}',
            '{"op":"d","before":{"id":1},"after":null}',
        ),
    }.values(),
)
def test_one_of_the_rows_of_an_event_keeps_its_digits(line: str, staged: str) -> None:
    landing = replace(JSON, schema="id INT, name STRING", changes=Debezium())
    [record] = read_records(line.encode(), landing, max_content_bytes=LIMIT)
    assert (record.content.decode(), record.event) == (line, staged)


@pytest.mark.parametrize(
    ("event", "landing", "found"),
    {
        "after": (
            '{"op": "u", "before": {"id": 1, "x": 1}, "after": {"id": 1, "x": 2.0}, "source": {"lsn": 7}}',
            SHOP,
            '{"x": 2.0}',
        ),
        "with its schema": (
            '{"schema": {}, "payload": {"op": "c", "after": {"id": 1, "x": 2}}}',
            SHOP,
            '{"x": 2}',
        ),
        "a deletion": ('{"op": "d", "before": {"id": 1, "x": 1}, "after": null}', SHOP, None),
        "a tombstone": ("null", SHOP, None),
        "unwrapped": ('{"id": 1, "x": 2, "__op": "u", "__source_lsn": 7}', PLAIN, '{"x": 2}'),
        "unwrapped, with names like the event's": (
            '{"id": 1, "__op": "u", "__wallTime": 7, "__v": 1}',
            PLAIN,
            '{"__v": 1}',
        ),
        "unwrapped, and refused": (
            '{"id": 1, "__op": "u", "__shard_of_new": 7}',
            replace(PLAIN, new_columns="refuse"),
            None,
        ),
    }.values(),
)
def test_undeclared_fields_are_of_the_row(event: str, landing: Landing, found: str | None) -> None:
    assert beside(event, landing) == [found]
