"""Fields with earlier names of columns are read as the columns, and two values of a column are never guessed from."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from lakehouse.cdc.plan.event import UNSENT
from lakehouse.declare.change_sources import Debezium, Dms
from lakehouse.declare.landing import Landing
from lakehouse.declare.table import Table
from lakehouse.declare.write_modes import Merge
from lakehouse.land.plan.file_text import are_declared, read_records
from lakehouse.land.plan.records import (
    TWO_NAMES,
    UNFIT,
    Record,
    Unreadable,
    earlier_names,
    with_earlier_names,
    with_renamed_fields,
)
from lakehouse.land.plan.undeclared import NewColumns

RENAMED = {"city": "town"}
JSON = Landing(prefix="landing/o/", format="json", schema="id BIGINT, town STRING")
CSV = replace(JSON, format="csv")
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
    [record] = records(line, JSON)
    assert (record.content.decode(), record.event, record.problem) == (line, parsed, problem)
    is_other = '{"City": "a"}' if "City" in line else None
    assert record.undeclared == is_other


def test_a_value_under_the_earlier_name_is_checked_like_one_under_the_present_name() -> None:
    landing = replace(JSON, schema="id BIGINT, price DECIMAL(5, 2), day DATE")
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
def test_an_earlier_name_in_a_header_counts_as_the_present_one(
    header: str, names: tuple[str, ...]
) -> None:
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


SCHEMA = {
    "type": "struct",
    "fields": [
        {"field": "id", "type": "int64"},
        {"field": "since", "type": "int32", "name": "io.debezium.time.Date"},
        {"field": "city", "type": "string"},
    ],
}


@pytest.mark.parametrize("unwrapped", [False, True])
def test_both_rows_of_an_event_have_present_names_and_are_decoded_by_their_schema(
    unwrapped: bool,
) -> None:
    landing = replace(
        JSON,
        schema="no BIGINT, opened DATE, town STRING",
        changes=Debezium(unwrapped=unwrapped),
        new_columns="refuse",
    )
    renamed = {**RENAMED, "id": "no", "since": "opened"}
    placeholder = "__debezium_unavailable_value"

    def event(row: dict[str, Any]) -> str:
        if unwrapped:
            return json.dumps({"schema": SCHEMA, "payload": {**row, "__op": "u"}})
        sides = [{**SCHEMA, "field": side} for side in ("before", "after")]
        payload = {"before": {"id": 7}, "after": row, "op": "u", "source": {"lsn": 1}}
        return json.dumps({"schema": {"fields": sides}, "payload": payload})

    [record] = records(event({"id": 1, "since": 15_000, "city": placeholder}), landing, renamed)
    assert (record.problem, record.undeclared) == (None, None)
    parsed = json.loads(record.event or "")
    row = parsed if unwrapped else parsed["after"]
    assert (row["no"], row["opened"], row["town"]) == (1, "2011-01-26", None)
    assert parsed[UNSENT] == ["town"]
    assert unwrapped or parsed["before"] == {"no": 7}
    [record] = records(event({"id": 1, "city": "a", "town": "b"}), landing, renamed)
    assert (record.problem, record.undeclared) == (CLASH, None)


def test_a_quarantined_record_is_of_the_declared_fields_under_their_earlier_names_too() -> None:
    landing = with_earlier_names(CSV, RENAMED)
    declared = [are_declared(fields, landing) for fields in ("id,city", "id,town", "id,place")]
    assert declared == [True, True, False]
    assert (are_declared(None, JSON), are_declared(None, CSV)) == (True, False)


def test_a_derived_column_has_no_earlier_name_in_files_and_the_key_of_changes_may_have_one() -> (
    None
):
    landing = replace(JSON, derived={"day": "to_date(town)"})
    assert earlier_names(with_earlier_names(landing, {"date": "day", **RENAMED})) == RENAMED
    assert with_earlier_names(landing, {}) is landing
    people = Table(
        key="bronze/people",
        source=replace(JSON, schema="no BIGINT", changes=Debezium()),
        write=Merge(keys=("no",)),
        renamed={"id": "no"},
    )
    assert earlier_names(with_renamed_fields(people).landing) == {"id": "no"}


def test_a_field_of_a_column_that_is_no_longer_declared_is_added_again_as_a_text_or_rescued() -> (
    None
):
    types = {"id": "bigint", "note": "string", "fee": "bigint", "Fax": "string"}
    new = NewColumns(landing=replace(JSON, new_columns="add"), known=(), table_types=types)
    new.see('{"note": "x", "fee": 1.5, "fax": "1", "more": true}')
    assert new.columns == ("note", "_rescued", "more")
