"""What the values of a file say about its columns."""

import pytest

from lakehouse.land.plan.records import Unreadable
from lakehouse.land.plan.schema_of_values import csv_schema, json_schema


@pytest.mark.parametrize(
    ("text", "header", "types"),
    [
        ("id,day\n1,2026-01-15\n", True, {"id": "BIGINT", "day": "DATE"}),
        ("1,a\n2,b\n", False, {"column_1": "BIGINT", "column_2": "STRING"}),
        ("name,city\nAnna,Rome\n", True, {"name": "STRING", "city": "STRING"}),
        (",id\n0,7\n1,8\n", True, {"id": "BIGINT"}),  # pandas' index has no name
        ("id,2025,2026\na,1,2\n", False, {f"column_{n}": t for n, t in ((1, "STRING"), (2, "BIGINT"), (3, "BIGINT"))}),
        ("id\nNA\n7\n", True, {"id": "BIGINT"}),
        ("p,code\n1e-05,1e5x\n2,7\n", True, {"p": "DOUBLE", "code": "STRING"}),  # as pandas writes
    ],
)  # fmt: skip
def test_typed_fields_are_no_header(text: str, header: bool, types: dict[str, str]) -> None:
    found = csv_schema(text)
    assert (found.csv.header, found.types) == (header, types)


def test_numbers_in_groups_of_digits_are_decimals_and_dates_with_points_are_texts() -> None:
    found = csv_schema("amount;day\n1.234,50;15.01.2026\n-9,5;16.01.2026\n")
    assert (found.csv.decimal, found.ddl) == (",", "amount DECIMAL(38,2), day STRING")
    assert csv_schema('amount,n\n"1,234.50",1\n7,2\n').types["amount"] == "DECIMAL(38,2)"


def test_a_name_that_cannot_be_a_column_gets_one_that_is_free() -> None:
    found = json_schema([{"Unit Price": 1.5, "größe": 2, "a b": 1, "a_b": 2, "_id": "x", "ID": 1, "id": 2}])  # fmt: skip
    assert found.renamed == {"Unit Price": "unit_price"}
    assert found.left_out == ("a b", "_id", "id")
    assert found.ddl == "unit_price DOUBLE, `größe` BIGINT, a_b BIGINT, ID BIGINT"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("id,id\n1,2\n", "does not name each column once: id, id"),
        ('"id","note"\n"1",1,"a"\n', "does not name each column once: id, note"),
    ],
)  # fmt: skip
def test_a_header_that_no_load_accepts_is_refused(text: str, why: str) -> None:
    with pytest.raises(Unreadable, match=why):
        csv_schema(text)
