"""Fields that no schema names are kept as they were sent, and fields with earlier names are read as their columns."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse.declare.landing import Debezium, Dms, Landing
from lakehouse.declare.table import Merge, Table
from lakehouse.land.plan.file_text import are_declared, read_records
from lakehouse.land.plan.records import (
    TWO_NAMES,
    UNFIT,
    NewColumns,
    Record,
    Unreadable,
    columns_in_force,
    earlier_names,
    with_earlier_names,
    with_renamed_fields,
)

LIMIT = 10_000_000
JSON = Landing(prefix="landing/o/", format="json", schema="id BIGINT, name STRING")


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
def test_undeclared_fields_are_kept_as_they_were_sent(line: str, found: str | None) -> None:
    assert beside(line) == [found]


NESTED = replace(
    JSON,
    schema="id BIGINT, who STRUCT<name: STRING, at: STRUCT<x: INT, `y z`: INT> COMMENT 'a > b'>",
)


@pytest.mark.parametrize(
    ("line", "found"),
    {
        "all declared": ('{"id": 1, "who": {"name": "a", "at": {"x": 1, "y z": 2}}}', None),
        "in a struct": ('{"who": {"name": "a", "mail": 1.10}}', '{"who.mail": 1.10}'),
        "in a struct of a struct, and beside": (
            '{"x": 1, "who": {"at": {"x": 1, "z": [2]}, "mail": null}}',
            '{"x": 1, "who.at.z": [2]}',
        ),
        "a struct that is none": ('{"who": [1]}', None),
        "no struct": ('{"who": null, "id": {"a": 1}}', None),
    }.values(),
)
def test_undeclared_members_of_a_struct_are_kept_too(line: str, found: str | None) -> None:
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
def test_each_field_is_declared_or_undeclared(record: dict[str, Any], is_ascii: bool) -> None:
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


RENAMED = {"city": "town"}
TOWNS = Landing(prefix="landing/o/", format="json", schema="id BIGINT, town STRING")
CSV = replace(TOWNS, format="csv")
CLASH = f"{TWO_NAMES}city and town"


def records(
    data: str | bytes, landing: Landing, renamed: Mapping[str, str] = RENAMED
) -> list[Record]:
    text = data.encode() if isinstance(data, str) else data
    in_force = with_earlier_names(landing, renamed)
    return [*read_records(text, in_force, max_content_bytes=1_000_000)]


@pytest.mark.parametrize(
    ("line", "parsed", "problem"),
    {
        "the earlier name": ('{"city": "a", "id": 1}', '{"id": 1, "town": "a"}', None),
        "the present name": ('{"id": 1, "town": "a"}', None, None),
        "neither": ('{"id": 1}', None, None),
        "both, equal": ('{"city": "\\u0061", "town" :"a"}', '{"town": "a"}', None),
        "both, with other signs": ('{"city": [1, 2], "town": [1,2]}', '{"town": "[1,2]"}', None),
        "both, and one is null": ('{"city": "a", "town": null}', '{"town": "a"}', None),
        "both, and the other is null": ('{"city": null, "town": "a"}', '{"town": "a"}', None),
        "both, unlike": ('{"city": "a", "town": "b"}', '{"town": "b"}', CLASH),
        # The same floats in Python.
        "digits": (
            '{"city": 12345678901234567890.1, "town": 12345678901234567890.2}',
            '{"town": "12345678901234567890.2"}',
            CLASH,
        ),
        "true and one": ('{"city": true, "town": 1}', '{"town": 1}', CLASH),
        "digits that a float would round": ('{"city": 1.10}', '{"town": "1.10"}', None),
        "a name in another case": ('{"City": "a"}', None, None),
    }.values(),
)
def test_a_record_is_parsed_by_its_present_names_and_kept_as_it_was_sent(
    line: str, parsed: str | None, problem: str | None
) -> None:
    [record] = records(line, TOWNS)
    assert (record.content.decode(), record.event, record.problem) == (line, parsed, problem)
    is_other = '{"City": "a"}' if "City" in line else None
    assert record.undeclared == is_other


def test_a_value_under_the_earlier_name_is_checked_like_one_under_the_present_name() -> None:
    landing = replace(TOWNS, schema="id BIGINT, price DECIMAL(5, 2), day DATE")
    renamed = {"cost": "price", "date": "day"}
    lines = ['{"cost": "1,5"}', '{"price": "1,5"}', '{"date": "20240101"}', '{"cost": "1.5"}']
    found = records("\n".join(lines), landing, renamed)
    assert [record.problem for record in found] == [UNFIT, UNFIT, UNFIT, None]
    [record] = records('{"cost": 1, "a": 2.50, "id": 3}', replace(landing, new_columns="refuse"))
    assert record.undeclared == '{"cost": 1, "a": 2.50}'
    [record] = records('{"cost": 1, "a": 2.50, "id": 3}', landing, renamed)
    assert record.undeclared == '{"a": 2.50}'


@pytest.mark.parametrize(
    ("header", "names"),
    [
        ("id,city", ("id", "town")),
        ('"id", "city" ', ("id", "town")),
        ("id,x,city", ("id", "x", "town")),
        ("city", ("town",)),
    ],
)
def test_an_earlier_name_in_a_header_counts(header: str, names: tuple[str, ...]) -> None:
    [record] = records(f"{header}\n1,2,3\n", CSV)
    assert record.fields is not None and record.fields.names == names


@pytest.mark.parametrize("header", ["id,city,town", "town,id,city", "city,id", "id,ctiy"])
def test_a_header_that_is_wrong_by_its_present_names_is_refused(header: str) -> None:
    with pytest.raises(Unreadable, match=f"^its header is {header!r} and not id,town"):
        records(f"{header}\n1,2,3\n", CSV)


def test_a_file_of_dms_may_have_earlier_names_and_their_before_images() -> None:
    landing = replace(
        CSV,
        schema="Op STRING, no BIGINT, town STRING, BI_no BIGINT",
        changes=Dms(),
        null_value="NULL",
    )
    renamed = {**RENAMED, "id": "no"}
    names = earlier_names(with_earlier_names(landing, renamed))
    assert names == {"city": "town", "id": "no", "BI_id": "BI_no"}
    for header in ("Op,id,city,BI_id", "Op,no,town,BI_no", "Op,id,town,BI_no"):
        [record] = records(f"{header}\nU,2,a,1\n", landing, renamed)
        assert record.content == b"U,2,a,1"
    # A file without a header, whose first record looks like names.
    [record] = records("I,1,city,\n", landing, renamed)
    assert record.content == b"I,1,city,"
    as_json = replace(landing, format="json", null_value=None)
    [record] = records('{"Op": "U", "id": 2, "BI_id": 1, "city": "a"}', as_json, renamed)
    assert json.loads(record.event or "") == {"Op": "U", "no": 2, "BI_no": 1, "town": "a"}


def test_a_quarantined_record_is_of_the_declared_fields_under_their_earlier_names_too() -> None:
    landing = with_earlier_names(CSV, RENAMED)
    declared = [are_declared(fields, landing) for fields in ("id,city", "id,town", "id,place")]
    assert declared == [True, True, False]
    assert (are_declared(None, TOWNS), are_declared(None, CSV)) == (True, False)


def test_a_derived_column_has_no_earlier_name_and_the_key_of_changes_may_have_one() -> None:
    landing = replace(TOWNS, derived={"day": "to_date(town)"})
    assert earlier_names(with_earlier_names(landing, {"date": "day", **RENAMED})) == RENAMED
    assert with_earlier_names(landing, {}) is landing
    people = Table(
        key="bronze/people",
        source=replace(TOWNS, schema="no BIGINT", changes=Debezium()),
        write=Merge(keys=("no",)),
        renamed={"id": "no"},
    )
    assert earlier_names(with_renamed_fields(people).landing) == {"id": "no"}


def test_a_field_that_is_no_longer_declared_is_added_again_as_a_text_or_rescued() -> None:
    types = {"id": "bigint", "note": "string", "fee": "bigint", "Fax": "string"}
    new = NewColumns(landing=replace(TOWNS, new_columns="add"), known=(), table_types=types)
    new.see('{"note": "x", "fee": 1.5, "fax": "1", "more": true}')
    assert new.columns == ("note", "_rescued", "more")
