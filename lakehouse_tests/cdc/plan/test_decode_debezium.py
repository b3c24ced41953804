"""The values of Debezium's events are decoded exactly, or the field is named that cannot be known."""

import json
from dataclasses import replace
from typing import Any

import pytest

from lakehouse import Debezium, Landing
from lakehouse.cdc.plan.decode_debezium import UNSENT, Event, canonical_event
from lakehouse_tests.cdc.debezium_types import (
    DECIMAL,
    MILLIS,
    QUARANTINED,
    TYPES,
    VARIABLE,
    event,
    plain,
    semantic,
)
from lakehouse_tests.land.plan.test_records import CLASH, RENAMED, TOWNS, records

LANDING = Landing(prefix="landing/x/", format="json", schema="id BIGINT", changes=Debezium())
PLACEHOLDER = "__debezium_unavailable_value"


def read(line: str, declared: str, changes: Debezium | None = None, name: str = "c") -> Event:
    fields = {"id": "BIGINT", name: declared}
    landing = replace(LANDING, changes=changes or Debezium())
    found = canonical_event(json.loads(line), line, landing, fields)
    assert found is not None
    return found


def value_of(
    sent: Any, declared: str, schema: dict[str, Any] | None = None, decimals: Any = None
) -> Any:
    """The decoded value, or the words of the problem."""
    fields = None if schema is None else [{**schema, "field": "c"}]
    found = read(event(1, {"c": sent}, fields), declared, Debezium(decimals=decimals))
    if found.problem is not None:
        assert found.problem.startswith("field c ")
        return QUARANTINED
    assert json.loads(found.text)["after"] == found.rows[-1]
    return found.rows[-1]["c"]


# Base64 that people really had: some are also texts of decimals.
UNSCALED = {
    "AfQ=": "5",
    "AcnDgA==": "300000",
    "/w==": "-0.01",
    "1234": "-26588.24",
    "1E08": "-28638.12",
}


@pytest.mark.parametrize(("sent", "number"), UNSCALED.items())
def test_a_decimal_in_base64_is_never_read_as_another_number(sent: str, number: str) -> None:
    assert value_of(sent, "DECIMAL(12,2)", DECIMAL) == number
    assert value_of(sent, "DECIMAL(12,2)") is QUARANTINED
    assert value_of(sent, "DECIMAL(12,2)", decimals="precise") == number
    assert value_of({"scale": 2, "value": sent}, "DECIMAL(12,2)", VARIABLE) == number
    assert value_of({"scale": 2, "value": sent}, "DECIMAL(12,2)") == number
    assert value_of(sent, "DECIMAL(12,2)", plain("bytes")) is QUARANTINED


NANOS = semantic("int64", "io.debezium.time.NanoTimestamp")
KAFKA_TIMESTAMP = semantic("int64", "org.apache.kafka.connect.data.Timestamp")
DECLARED = [
    # Not Base64: a text for certain.
    ("12.50", "DECIMAL(12,2)", None, "12.5"),
    ("-7", "DECIMAL(12,2)", None, "-7"),
    ("123", "DECIMAL(12,2)", None, "123"),
    ("12.50", "DECIMAL(12,2)", plain("string"), "12.5"),
    ("1234", "DECIMAL(12,2)", plain("string"), "1234"),
    (12.5, "DECIMAL(12,2)", None, 12.5),
    (5, "DECIMAL(12,2)", DECIMAL, 5),
    # Not exactly.
    ("12.505", "DECIMAL(12,2)", None, QUARANTINED),
    (12.505, "DECIMAL(12,2)", None, QUARANTINED),
    ("AfQ=", "DECIMAL(2,2)", DECIMAL, QUARANTINED),
    ("NAN", "DECIMAL(12,2)", plain("string"), QUARANTINED),
    (True, "DECIMAL(12,2)", None, QUARANTINED),
    ("AfQ=", "DECIMAL(12,2)", semantic("bytes", "io.debezium.data.Bits"), QUARANTINED),
    ("AfQ=", "BIGINT", DECIMAL, 5),
    ("/w==", "BIGINT", DECIMAL, QUARANTINED),
    ("AfQ=", "STRING", DECIMAL, "5.00"),
    ("AfQ=", "STRING", None, "AfQ="),
    ("AfQ=", "DOUBLE", DECIMAL, 5),
    (True, "BOOLEAN", None, True),
    (2, "BOOLEAN", plain("int16"), 2),  # which Spark refuses
    (0, "TIMESTAMP_NTZ", MILLIS, "1970-01-01T00:00:00"),
    (-1, "TIMESTAMP", MILLIS, "1969-12-31T23:59:59.999Z"),
    (0, "TIMESTAMP", None, QUARANTINED),
    (0, "TIMESTAMP", plain("int64"), QUARANTINED),
    (9_223_371_331_200_000_000, "TIMESTAMP", MILLIS, QUARANTINED),  # infinity
    (1, "TIMESTAMP", NANOS, QUARANTINED),
    (1_000, "TIMESTAMP", NANOS, "1970-01-01T00:00:00.000001Z"),
    (1, "STRING", NANOS, "1970-01-01T00:00:00.000000001"),
    ("2024-02-29T10:30:00.1234567Z", "TIMESTAMP", None, QUARANTINED),
    (1, "TIMESTAMP", KAFKA_TIMESTAMP, "1970-01-01T00:00:00.001Z"),
    (1, "DATE", semantic("int32", "org.apache.kafka.connect.data.Date"), "1970-01-02"),
    (86_400_000, "DATE", MILLIS, "1970-01-02"),
    (86_400_001, "DATE", MILLIS, QUARANTINED),
    (3_000_000, "DATE", None, QUARANTINED),
    (1, "DATE", plain("int32"), QUARANTINED),
    (-3_020_399_000_000, "STRING", semantic("int64", "io.debezium.time.MicroTime"), "-838:59:59"),
    (37_800_500, "STRING", semantic("int32", "io.debezium.time.Time"), "10:30:00.5"),
    ("DEAD", "BINARY", plain("string"), QUARANTINED),  # hex or Base64
    ("DEAD", "BINARY", plain("bytes"), "DEAD"),
    ({"k": "AfQ="}, "MAP<STRING, DECIMAL(12,2)>", {"type": "map", "values": DECIMAL}, QUARANTINED),
    ("é===", "DECIMAL(12,2)", DECIMAL, QUARANTINED),
    ({"k": 1}, "STRUCT<k: TIMESTAMP>", None, QUARANTINED),
    ([{"k": 1}], "ARRAY<STRUCT<k: DECIMAL(12,2)>>", None, QUARANTINED),
]


@pytest.mark.parametrize(("sent", "declared", "schema", "loaded"), DECLARED)
def test_a_value_is_read_by_its_schema_or_by_the_one_meaning_that_it_has(
    sent: Any, declared: str, schema: dict[str, Any] | None, loaded: Any
) -> None:
    assert value_of(sent, declared, schema) == loaded


def test_decimals_of_a_declared_mode_have_no_other_form() -> None:
    assert value_of("1234", "DECIMAL(12,2)", decimals="string") == "1234"
    assert value_of("AfQ=", "DECIMAL(12,2)", decimals="string") is QUARANTINED
    assert value_of("12.50", "DECIMAL(12,2)", decimals="precise") is QUARANTINED


def test_a_number_keeps_the_digits_that_the_line_has() -> None:
    line = '{"op":"c","after":{"id":1,"c":1234567890123456789.12,"d":1.10}}'
    found = read(line, "DECIMAL(38,2)")
    assert (found.text, found.problem) == (line, None)
    assert read(line, "DECIMAL(38,1)").problem is not None


FORMS = {
    "text": (PLACEHOLDER, "STRING"),
    "bytes": ("X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==", "BINARY"),
    "hex": ("5f5f646562657a69756d5f756e617661696c61626c655f76616c7565", "STRING"),
    "texts": ([PLACEHOLDER], "ARRAY<STRING>"),
    "numbers": (list(PLACEHOLDER.encode()), "ARRAY<INT>"),
    "UUIDs": (["b68a35a7-17ad-35b3-af2a-ae46edb4545a"], "ARRAY<STRING>"),
    "a decimal": (PLACEHOLDER, "DECIMAL(12,2)"),
    "undeclared": (PLACEHOLDER, None),
}


@pytest.mark.parametrize(("sent", "declared"), FORMS.values(), ids=FORMS)
def test_an_unsent_value_is_null_and_its_field_named(sent: Any, declared: str | None) -> None:
    fields = {"id": "BIGINT", **({} if declared is None else {"c": declared})}

    def found(op: str, **more: Any) -> Event:
        side = "before" if op == "d" else "after"
        line = json.dumps({"op": op, side: {"id": 1, "c": sent, **more}})
        event = canonical_event(json.loads(line), line, LANDING, fields)
        assert event is not None
        return event

    update = json.loads(found("u").text)
    assert (update["after"], update[UNSENT]) == ({"id": 1, "c": None}, ["c"])
    assert found("u").problem is None
    # An insert has every value, unless the key was changed: then its row is another one.
    assert "field c was not sent" in (found("c").problem or "")
    deletion = found("d")
    assert (deletion.rows[0]["c"], deletion.problem) == (None, None)
    assert "a value inside a field was not sent" in (found("u", d={"x": sent}).problem or "")


def test_an_hstore_that_was_not_sent_is_quarantined() -> None:
    hstore = {PLACEHOLDER: PLACEHOLDER}
    for sent, declared in ((hstore, "MAP<STRING, STRING>"), (json.dumps(hstore), "STRING")):
        line = json.dumps({"op": "u", "after": {"id": 1, "c": sent}})
        assert "was not sent" in (read(line, declared).problem or "")


def test_an_unwrapped_row_keeps_values_only_where_it_says_that_it_is_an_update() -> None:
    changes = Debezium(unwrapped=True)
    row = {"id": 1, "c": PLACEHOLDER}
    update = read(json.dumps({**row, "__op": "u"}), "STRING", changes)
    assert (json.loads(update.text)[UNSENT], update.problem) == (["c"], None)
    other = read(json.dumps({**row, "__deleted": "false"}), "STRING", changes)
    assert "add.fields=op" in (other.problem or "")


TOMBSTONES = [
    ("null", True),
    ('{"schema": null, "payload": null}', True),
    ('{"payload": null, "schema": {"type": "struct"}}', True),
    ('{"payload": null}', True),
    ('{"payload": {}}', False),
    ('{"schema": null}', False),
    ('{"payload": null, "id": 1}', False),
]


@pytest.mark.parametrize(("line", "is_tombstone"), TOMBSTONES)
def test_a_tombstone_may_stand_in_an_envelope(line: str, *, is_tombstone: bool) -> None:
    assert (read(line, "STRING").text == "null") is is_tombstone
    # A table may have a column of that name.
    row = read(line, "STRING", Debezium(unwrapped=True), name="payload")
    assert (row.text == "null") is (is_tombstone and line != '{"payload": null}')


def test_without_schema_only_a_value_with_several_meanings_is_quarantined() -> None:
    for each in TYPES:
        found = value_of(each.sent, each.declared)
        assert (found is QUARANTINED) is (each.without is QUARANTINED)


SCHEMA = {
    "type": "struct",
    "fields": [
        {"field": "id", "type": "int64"},
        {"field": "since", "type": "int32", "name": "io.debezium.time.Date"},
        {"field": "city", "type": "string"},
    ],
}


@pytest.mark.parametrize("unwrapped", [False, True])
def test_both_rows_have_present_names_and_are_decoded_by_their_schema(unwrapped: bool) -> None:
    landing = replace(
        TOWNS,
        schema="no BIGINT, opened DATE, town STRING",
        changes=Debezium(unwrapped=unwrapped),
        new_columns="refuse",
    )
    renamed = {**RENAMED, "id": "no", "since": "opened"}

    def sent(row: dict[str, Any]) -> str:
        if unwrapped:
            return json.dumps({"schema": SCHEMA, "payload": {**row, "__op": "u"}})
        sides = [{**SCHEMA, "field": side} for side in ("before", "after")]
        payload = {"before": {"id": 7}, "after": row, "op": "u", "source": {"lsn": 1}}
        return json.dumps({"schema": {"fields": sides}, "payload": payload})

    [record] = records(sent({"id": 1, "since": 15_000, "city": PLACEHOLDER}), landing, renamed)
    assert (record.problem, record.undeclared) == (None, None)
    parsed = json.loads(record.event or "")
    row = parsed["after"]
    assert (row["no"], row["opened"], row["town"]) == (1, "2011-01-26", None)
    assert parsed[UNSENT] == ["town"]
    assert unwrapped or parsed["before"] == {"no": 7}
    [record] = records(sent({"id": 1, "city": "a", "town": "b"}), landing, renamed)
    assert (record.problem, record.undeclared) == (CLASH, None)
