"""Fields that no schema names are found as they were sent, and become columns by rules that anybody can tell."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse.declare.change_sources import Debezium
from lakehouse.declare.landing import Landing
from lakehouse.land.plan.file_text import read_records
from lakehouse.land.plan.undeclared import NewColumns, columns_in_force

LIMIT = 10_000_000
JSON = Landing(prefix="landing/o/", format="json", schema="id BIGINT, name STRING")
SHOP, PLAIN = (replace(JSON, changes=Debezium(unwrapped=unwrapped)) for unwrapped in (False, True))


def beside(data: str, landing: Landing = JSON) -> list[str | None]:
    """What each record has beside the declared fields."""
    return [
        record.undeclared
        for record in read_records(data.encode(), landing, max_content_bytes=LIMIT)
    ]


@pytest.mark.parametrize(
    ("line", "found"),
    {
        "digits as they were sent": (
            '{"x": 1.10, "id": 1, "y" : 12345678901234567890.5}',
            '{"x": 1.10, "y": 12345678901234567890.5}',
        ),
        "objects and lists": (
            '{"x":{"id": [1, {"a": 2}], "a" :1,"a":2},"id":1}',
            '{"x": {"id": [1, {"a": 2}], "a" :1,"a":2}}',
        ),
        "the last of two": ('{"x": 1, "x": 2}', '{"x": 2}'),
        "no object": ("[1]", None),
        "half a character": (r'{"id": 1, "x": "\ud83d"}', None),
    }.values(),
)
def test_fields_that_no_schema_names_are_kept_as_they_were_sent(
    line: str, found: str | None
) -> None:
    assert beside(line) == [found]


NESTED = replace(
    JSON,
    schema="id BIGINT, who STRUCT<name: STRING, at: STRUCT<x: INT, `y z`: INT> COMMENT 'a > b'>",
)


@pytest.mark.parametrize(
    ("line", "found"),
    {
        "all declared": ('{"id": 1, "who": {"name": "a", "at": {"x": 1, "y z": 2}}}', None),
        "in a struct": (
            '{"who": {"name": "a", "mail": 1.10}}',
            '{"who.mail": 1.10}',
        ),
        "in a struct of a struct, and beside": (
            '{"x": 1, "who": {"at": {"x": 1, "z": [2]}, "mail": null}}',
            '{"x": 1, "who.at.z": [2]}',
        ),
        "a struct that is none": ('{"who": [1]}', None),
        "no struct": ('{"who": null, "id": {"a": 1}}', None),
    }.values(),
)
def test_members_that_a_declared_struct_does_not_name_are_kept_too(
    line: str, found: str | None
) -> None:
    assert beside(line, NESTED) == [found]


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=3), inner, max_size=2)
    ),
    max_leaves=5,
)


@given(
    st.dictionaries(st.sampled_from(["id", "name", "x", "é", 'a"b', "", "id "]), JSON_VALUES),
    st.booleans(),
)
def test_declared_and_undeclared_fields_are_all_fields(
    record: dict[str, Any], is_ascii: bool
) -> None:
    found = (
        [None]
        if not record
        else beside(json.dumps(record, ensure_ascii=is_ascii).replace("\n", " "))
    )
    others = {
        name: value
        for name, value in record.items()
        if name not in ("id", "name") and value is not None
    }
    assert [each and json.loads(each) for each in found] == [others or None]


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
def test_of_an_event_of_debezium_its_row_is_looked_at(
    event: str, landing: Landing, found: str | None
) -> None:
    assert beside(event, landing) == [found]


def added(*records: str, known: tuple[str, ...] = (), landing: Landing = JSON) -> tuple[str, ...]:
    columns = NewColumns(landing=replace(landing, new_columns="add"), known=known)
    for record in records:
        columns.see(record)
    return columns.columns


@pytest.mark.parametrize(
    ("records", "found"),
    {
        "in the order of the records": (('{"b": 1, "c": true}', '{"a": 1, "b": "x"}'), "b c a"),
        "known ones": (('{"Kept": "x", "new": 1}',), "new"),
        "names that are taken": (('{"ID": 1, "kept": 1}', '{"a": 1, "A": 1}'), "_rescued a"),
        "names of no column": (
            ('{"_id": 1}', '{"a b": 1}', '{"": 1}', '{"a.b": 1}', f'{{"{"x" * 256}": 1}}'),
            "_rescued",
        ),
    }.values(),
)
def test_added_columns_have_names_that_are_free(records: tuple[str, ...], found: str) -> None:
    assert added(*records, known=("Kept",)) == tuple(found.split())


def test_a_table_gets_a_thousand_columns_at_most() -> None:
    many = added(json.dumps({f"c{number}": 1 for number in range(2_000)}))
    assert (len(many), many[-1]) == (999, "_rescued")  # beside the two that are declared


def test_only_a_policy_that_keeps_fields_makes_columns() -> None:
    for policy, names in (("rescue", ["_rescued"]), ("refuse", [])):
        columns = NewColumns(landing=replace(JSON, new_columns=policy), known=())  # type: ignore[arg-type]
        columns.see('{"x": 1}')
        assert [*columns.columns] == names


def test_a_column_that_was_declared_since_is_of_the_declaration() -> None:
    assert columns_in_force(["Kept"], JSON) == ("Kept",)
    assert columns_in_force(["Kept"], replace(JSON, schema="id BIGINT, kept STRING")) == ()
