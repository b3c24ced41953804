"""What files suggest to declare."""

from typing import Any

import pytest

from lakehouse import Append
from lakehouse.init.plan import Suggestion, suggest, table_name
from lakehouse.land.plan.schema_of_values import csv_schema, json_schema


def suggestion(found: Any, *files: str) -> Suggestion:
    return suggest(found, files, key="bronze/orders", prefix="landing/orders/")


@pytest.mark.parametrize(
    ("found", "file"),
    [
        (json_schema([{"op": "c", "before": None, "after": {"id": 1}}]), "1.json"),
        (json_schema([{"schema": None, "payload": {"op": "c"}}]), "1.json"),
        (json_schema([{"id": 1, "__deleted": "false"}]), "1.json"),
        (csv_schema("Op,id\nI,1\nD,1\n"), "x.csv"),
        (csv_schema("1,NULL\n2,x\n"), "a/LOAD00000001.csv"),
    ],
)
def test_change_data_is_named_and_left_to_the_person(found: Any, file: str) -> None:
    suggested = suggestion(found, file)
    assert suggested.notes[0].startswith("These may be change data of AWS DMS or Debezium.")
    assert suggested.table.landing.changes is None and suggested.table.write == Append()
    assert not suggestion(csv_schema("id,n\n1,2\n"), "x.csv").notes


def test_dates_that_stay_text_are_named_with_their_conversion() -> None:
    found = suggestion(csv_schema("id;Placed at\n1;31.12.2026\n2;1.2.2026\n"), "x.csv")
    assert found.table.landing.schema == "id BIGINT, placed_at STRING"
    assert "\"to_date(placed_at, 'd.M.yyyy') AS placed_at\"" in found.notes[-1]


def test_a_topic_of_debezium_names_its_table_last() -> None:
    assert table_name(["shop.public.orders", "topics"]) == "orders"
    assert table_name(["Orders-2026-01.csv.gz"]) == "orders"
