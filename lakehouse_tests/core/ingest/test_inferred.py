"""A schema that nobody declares is inferred once, by rules that anybody can tell, and pinned."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse.core.declaration.column_names import field_names
from lakehouse.core.declaration.compaction_policy import Compaction, ZOrder
from lakehouse.core.declaration.landing import Csv, Landing
from lakehouse.core.declaration.table import Table
from lakehouse.core.declaration.write_modes import Append
from lakehouse.core.errors import Refused
from lakehouse.core.ingest.file_text import read_records
from lakehouse.core.ingest.inferred import (
    FirstFile,
    has_record,
    infer_columns,
    landing_to_infer,
    pinned_landing,
    pinned_table,
)
from lakehouse.core.ingest.records import Record
from lakehouse.core.ingest.undeclared import AddedColumn
from lakehouse_tests.core.ingest.test_undeclared import JSON_VALUES

JSON = Landing(prefix="landing/o/", format="json")
CSV = replace(JSON, format="csv")
ORDERS = Table(key="bronze/orders", source=JSON, write=Append())


def records(data: str, landing: Landing) -> Iterator[Record]:
    return read_records(data.encode(), landing_to_infer(landing), max_content_bytes=1_000_000)


def inferred(landing: Landing, *files: str) -> list[tuple[str, str, str]]:
    """Name, type and file of the columns that files `0`, `1` and so on give."""
    found = infer_columns(
        [
            FirstFile(path=str(number), records=records(data, landing))
            for number, data in enumerate(files)
        ],
        landing,
        7,
    )
    assert all((column.policy, column.at_ms) == ("infer", 7) for column in found)
    return [(column.name, column.type, column.file) for column in found]


@pytest.mark.parametrize(
    ("landing", "files", "found"),
    {
        "kinds": (
            JSON,
            ['{"a": true, "b": "007", "n": null}'],
            [("a", "BOOLEAN", "0"), ("b", "STRING", "0")],
        ),
        "all records": (
            JSON,
            ['{"a": 1}\nno JSON\n{"a": 2.5}', '\n{"b": 1}', '{"b": "x"}'],
            [("a", "DOUBLE", "0"), ("b", "STRING", "1")],
        ),
        "names that can be no column": (
            JSON,
            ['{"_id": 1, "a b": 1, "valid_from": "x", "ID": 1, "id": 1}'],
            ["valid_from", "ID"],
        ),
        "a derived column's name": (
            replace(JSON, derived={"day": "1"}),
            ['{"day": 1, "a": 1}'],
            ["a"],
        ),
        "no field": (JSON, ['{}\n[1]\n{"a": "\\ud83d"}'], []),
        "text as CSV has it": (
            CSV,
            ["id,price\n007,1.10\n"],
            [("id", "STRING", "0"), ("price", "STRING", "0")],
        ),
        "columns without a value": (CSV, ["id,note\n1,\n"], ["id", "note"]),
        "the first header with a record": (
            CSV,
            ["x,x\n1,2\n", "y\n", "id,_at,na me\n1,2,3\n", "z\n1\n"],
            [("id", "STRING", "2")],
        ),
        "a first header of names that no column has": (
            CSV,
            ["na me,_at\n1,2\n", "id,na me\n1,2\n", "z\n1\n"],
            [("id", "STRING", "1")],
        ),
        "required and derived columns": (
            replace(CSV, required=("id",), derived={"header": "1"}),
            ["id,note\n1,x\n"],
            ["id", "note"],
        ),
        "other signs": (
            replace(CSV, csv=Csv(delimiter=";", quote="'")),
            ["'id';n\n1;2\n"],
            ["id", "n"],
        ),
    }.values(),
)
def test_the_first_files_give_columns_by_the_rules_of_added_ones(
    landing: Landing, files: list[str], found: list[object]
) -> None:
    assert [
        column if isinstance(found[0], tuple) else column[0] for column in inferred(landing, *files)
    ] == found


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["id", "ID", "_x", "a b", "é", 'a"b', "a`b", ""]), JSON_VALUES
        ),
        min_size=1,
        max_size=5,
    )
)
def test_every_field_of_the_first_batch_is_a_pinned_column_or_beside_them(
    rows: list[dict[str, Any]],
) -> None:
    data = "\n".join(map(json.dumps, rows))
    columns = infer_columns([FirstFile(path="f", records=records(data, JSON))], JSON, 0)
    landing, names = pinned_landing(JSON, columns), {column.name for column in columns}
    assert field_names(landing.schema) == tuple(column.name for column in columns)
    assert names <= {"id", "ID", "é", 'a"b', "a`b"} and len(
        {name.lower() for name in names}
    ) == len(names)
    beside = [json.loads(record.undeclared or "{}") for record in records(data, landing)]
    assert beside == [
        {name: value for name, value in row.items() if name not in names and value is not None}
        for row in rows
    ]


def test_a_file_with_types_of_its_own_gives_these_if_it_has_a_record() -> None:
    types = {"id": "BIGINT", "price": "DECIMAL(10,2)", "_x": "DATE", "none": "TIMESTAMP"}
    files = [
        FirstFile(path="empty", records=iter(()), types={"gone": "DATE"}),
        FirstFile(path="f", records=iter([Record(1, b"{}")]), types=types),
        FirstFile(
            path="g",
            records=iter([Record(1, b"{}")]),
            types={"id": "DOUBLE", "price": "DECIMAL(12,2)"},
        ),
    ]
    found = [
        (column.name, column.type, column.file)
        for column in infer_columns(files, replace(JSON, format="parquet"), 7)
    ]
    assert found == [("id", "STRING", "f"), ("price", "STRING", "f"), ("none", "TIMESTAMP", "f")]


def test_a_header_is_no_record() -> None:
    assert [has_record(records(data, CSV), CSV) for data in ("", "id\n", "id\n1\n")] == [
        False,
        False,
        True,
    ]
    assert [has_record(records(data, JSON), JSON) for data in ("\n", "[1]")] == [False, True]


def column(name: str, kind: str, policy: str = "infer") -> AddedColumn:
    return AddedColumn(name=name, type=kind, file="landing/o/1.json", policy=policy, at_ms=0)


PINNED = (column("id", "BIGINT"), column("a`b", "STRING"))
ADDED = column("more", "DOUBLE", "add")


def test_a_pinned_schema_is_as_if_it_were_declared() -> None:
    assert pinned_landing(JSON, [*PINNED, ADDED]) == replace(
        JSON, schema="`id` BIGINT, `a``b` STRING"
    )
    assert pinned_landing(JSON, [ADDED]) == JSON
    declared = replace(
        JSON, schema="more STRING, id LONG COMMENT 'x, y', price Decimal( 10, 2 ) NOT NULL"
    )
    assert pinned_landing(declared, [*PINNED, column("price", "DECIMAL(10,2)"), ADDED]) == declared


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("id INT", "id INT; the schema that was inferred from landing/o/1.json and pinned has id"),
        ("a BIGINT, ID BIGINT", "ID BIGINT; "),
    ],
)
def test_a_declaration_that_differs_from_the_pinned_schema_loads_nothing(
    schema: str, said: str
) -> None:
    with pytest.raises(Refused, match=f"load of bronze/orders: Landing.schema declares {said}"):
        pinned_table(replace(ORDERS, source=replace(JSON, schema=schema)), PINNED)


def test_a_schema_that_is_no_longer_declared_is_not_inferred_from_what_lands_next() -> None:
    assert pinned_table(ORDERS, (), is_loaded=False) == ORDERS
    assert pinned_table(ORDERS, PINNED, is_loaded=True).source == pinned_landing(JSON, PINNED)
    with pytest.raises(
        Refused,
        match="load of bronze/orders: no schema is declared, and files were loaded with one",
    ):
        pinned_table(ORDERS, [ADDED], is_loaded=True)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (
            replace(ORDERS, source=replace(JSON, required=("idd",))),
            "Landing.required holds the unknown column 'idd'. Did you mean 'id'?",
        ),
        (replace(ORDERS, source=replace(JSON, derived={"Id": "1"})), "holds 'Id' twice"),
        (
            replace(ORDERS, write=Append(partition_by=("idd",))),
            "Append.partition_by holds the unknown column 'idd'. Did you mean 'id'?",
        ),
        (
            replace(ORDERS, column_descriptions={"x": "y"}),
            "column_descriptions holds the unknown column 'x'. Use one of id, a`b",
        ),
        (
            replace(ORDERS, compaction=Compaction(data_layout=ZOrder(columns=("x",)))),
            "ZOrder.columns holds the unknown column 'x'. Use one of id, a`b",
        ),
    ],
)
def test_what_a_declaration_names_must_be_in_the_pinned_schema(table: Table, said: str) -> None:
    with pytest.raises(Refused) as refused:
        pinned_table(table, PINNED)
    assert str(refused.value).startswith("load of bronze/orders: ") and said in str(refused.value)
