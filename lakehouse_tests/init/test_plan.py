"""Files of change data, and what they suggest."""

import json
from typing import Any

import pytest

from lakehouse import Append, Debezium, Dms, Merge
from lakehouse.init.plan import Suggestion, suggest, table_name
from lakehouse.land.plan.schema_of_values import csv_schema, json_schema, schema_of_types


def suggestion(found: Any, *files: str) -> Suggestion:
    return suggest(found, files, key="bronze/orders", prefix="landing/orders/")


def event(op: str, before: Any, after: Any, **source: Any) -> dict[str, Any]:
    return {"op": op, "before": before, "after": after, "source": source or {"lsn": 7}}


CREATED = event("c", None, {"shop": "x", "order_id": 1, "amount": "AfQ="})
ROW_SCHEMA = [
    {"type": "string", "field": "shop"},
    {"type": "int32", "field": "order_id"},
    {
        "type": "bytes",
        "field": "amount",
        "name": "org.apache.kafka.connect.data.Decimal",
        "parameters": {"scale": "2", "connect.decimal.precision": "12"},
    },
    {"type": "int64", "field": "at", "name": "io.debezium.time.MicroTimestamp"},
    {"type": "array", "field": "tags", "items": {"type": "string"}},
]
SCHEMA = {"fields": [{"field": "before", "fields": []}, {"field": "after", "fields": ROW_SCHEMA}]}


@pytest.mark.parametrize(
    ("lines", "ddl", "changes"),
    [
        (
            [CREATED, event("d", {"order_id": 1}, None)],
            "shop STRING, order_id BIGINT, amount STRING",
            Debezium(),
        ),
        (
            [{"schema": SCHEMA, "payload": CREATED}, {"schema": None, "payload": None}],
            "shop STRING, order_id BIGINT, amount DECIMAL(12,2), at TIMESTAMP, tags ARRAY<STRING>",
            Debezium(),
        ),
        (
            [{"order_id": 1, "__deleted": "false", "__source_scn": "5"}],
            "order_id BIGINT",
            Debezium(unwrapped=True, position="scn BIGINT"),
        ),
        (
            [event("r", None, {"order_id": 1}, change_lsn="1:2", commit_lsn="1:3")],
            "order_id BIGINT",
            Debezium(position="commit_lsn STRING, change_lsn STRING"),
        ),
    ],
)
def test_events_suggest_rows(lines: list[dict[str, Any]], ddl: str, changes: Debezium) -> None:
    found = suggestion(json_schema(json.loads(json.dumps(lines))), "1.json")
    assert (found.table.landing.schema, found.table.landing.changes) == (ddl, changes)
    assert found.table.write == Merge(keys=("order_id",))
    assert any("A guess is order_id" in note for note in found.notes)
    assert any("without a schema" in note for note in found.notes) == ("payload" not in lines[0])


def test_objects_with_an_op_of_their_own_are_no_events() -> None:
    found = suggestion(json_schema([{"op": "c", "id": 1}, {"payload": "text"}]), "1.json")
    assert found.table.landing.changes is None and found.table.write == Append()


def test_a_full_load_of_dms_has_no_operation_yet_and_perhaps_no_header() -> None:
    found = suggestion(csv_schema("1,NULL\n2,x\n"), "a/LOAD00000001.csv", "a/LOAD0000000A.csv")
    source = found.table.landing
    assert source.schema == "Op STRING, column_1 BIGINT, column_2 STRING"
    assert (source.changes, source.null_value) == (Dms(), "NULL")
    assert any("names of the columns are made up" in note for note in found.notes)


def test_changes_of_dms_are_known_by_their_operation() -> None:
    text = "Op,id,amount,AR_H_CHANGE_SEQ\nI,1,9.50,20260115000000000000000001\nD,1,,2\n"
    source = suggestion(csv_schema(text), "x.csv").table.landing
    assert source.schema == "Op STRING, id BIGINT, amount DOUBLE, AR_H_CHANGE_SEQ STRING"
    assert source.changes == Dms(position=("AR_H_CHANGE_SEQ",))
    other = suggestion(csv_schema("Op,id\nI,1\nX,2\n"), "x.csv")
    assert other.table.landing.changes is None
    parquet = schema_of_types("parquet", {"id": "INT"}, [{"id": 1}])
    assert suggestion(parquet, "LOAD00000001.parquet").table.landing.schema == "Op STRING, id INT"


def test_a_key_differs_in_every_row_of_the_files() -> None:
    def keys(*rows: dict[str, Any]) -> tuple[str, ...]:
        events = [event("c", None, row) for row in rows]
        write = suggestion(json_schema(events), "1.json").table.write
        return write.keys if isinstance(write, Merge) else ()

    assert keys({"a": 1, "customer_id": 1, "order_id": 1}) == ("order_id",)
    assert keys({"order_id": 1, "line": 1, "n": 5}, {"order_id": 1, "line": 2, "n": 5}) == ("order_id", "line")  # fmt: skip
    assert keys({"Line Id": 1, "n": 1}, {"Line Id": 2, "n": 1}) == ("line_id",)
    assert keys({"a": 1}, {"a": 1}) == ("a",)


def test_a_key_may_be_inserted_again_after_its_deletion() -> None:
    rows = [{"id": 1, "email": "a"}, {"id": 2, "email": "b"}, {"id": 1, "email": "c"}]
    created = [event("c", None, row) for row in rows]
    deleted = event("d", {"id": 1, "email": None}, None)
    write = suggestion(json_schema([*created[:2], deleted, created[2]]), "1.json").table.write
    assert write == Merge(keys=("id",))


def test_dates_that_stay_text_are_named_with_their_conversion() -> None:
    found = suggestion(csv_schema("id;Placed at\n1;31.12.2026\n2;1.2.2026\n"), "x.csv")
    assert found.table.landing.schema == "id BIGINT, placed_at STRING"
    assert "\"to_date(placed_at, 'd.M.yyyy') AS placed_at\"" in found.notes[-1]


def test_a_topic_of_debezium_names_its_table_last() -> None:
    assert table_name(["shop.public.orders", "topics"]) == "orders"
    assert table_name(["Orders-2026-01.csv.gz"]) == "orders"
