"""A column that is no longer declared stays in the table, and rows that are written from then on have null there."""

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lakehouse import Append, Landing, Merge, Table
from lakehouse.lake.lake import Lake
from lakehouse.materialize.run import write_table
from lakehouse_tests.support.example_lake import columns_of, land, rows_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PREFIX = "landing/shops/"
SHOPS = Table(
    key="bronze/shops",
    source=Landing(
        prefix=PREFIX,
        format="json",
        schema="id BIGINT, note STRING, fee BIGINT, at INT",
        new_columns="add",
    ),
    write=Append(),
)
BARE = replace(SHOPS, source=replace(SHOPS.landing, schema="id BIGINT, at INT"))


def newest(shops: Table, *columns: str) -> Table:
    return Table(
        key="silver/shops",
        inputs=(shops,),
        write=Merge(keys=("id",), order_by=("at",)),
        transform=lambda shops: shops.select(*columns),
    )


@pytest.mark.long
def test_appended_and_merged_rows_have_null_and_the_field_comes_back_by_its_policy(
    lake: Lake, spark: "SparkSession"
) -> None:
    """It is the column again if this is a text. Otherwise it is rescued, and nothing is cast."""
    rows = [{"id": 1, "note": "a", "fee": 1, "at": 1}, {"id": 2, "note": "b", "fee": 2, "at": 1}]
    land(lake, "1.json", rows, prefix=PREFIX)
    write_table(lake, spark, SHOPS)
    write_table(lake, spark, newest(SHOPS, "id", "note", "at"))

    land(lake, "2.json", [{"id": 1, "at": 2}, {"id": 4, "at": 1, "note": None}], prefix=PREFIX)
    land(lake, "3.json", [{"id": 3, "at": 1, "note": 5, "fee": 7}], prefix=PREFIX)
    outcome = write_table(lake, spark, BARE)
    assert (outcome.rows_quarantined, outcome.rows_rescued) == (0, 1)
    assert columns_of(lake, BARE) == ["note", "_rescued"]
    write_table(lake, spark, newest(BARE, "id", "at"))
    assert rows_in(lake, "silver/shops", "id", "note", "at") == [
        (1, None, 2),
        (2, "b", 1),
        (3, None, 1),
        (4, None, 1),
    ]
    # Declared again, it goes on.
    land(lake, "4.json", [{"id": 5, "at": 1, "note": "c"}], prefix=PREFIX)
    write_table(lake, spark, SHOPS)
    assert rows_in(lake, SHOPS.key, "id", "note", "fee", "at", "_rescued") == [
        (1, "a", 1, 1, None),
        (1, None, None, 2, None),
        (2, "b", 2, 1, None),
        (3, "5", None, 1, '{"fee":7}'),
        (4, None, None, 1, None),
        (5, "c", None, 1, None),
    ]
