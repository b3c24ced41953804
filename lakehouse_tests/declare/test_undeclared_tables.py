"""A table that no declaration names is named, with what to do."""

from lakehouse import Append, Landing, Table
from lakehouse.declare.table import undeclared_among

ORDERS = Table(
    key="bronze/sales",
    source=Landing(prefix="landing/orders/", format="json", schema="id BIGINT"),
    write=Append(),
    location="bronze/orders",
)


def test_only_tables_of_a_layer_that_no_key_and_no_location_names_are_undeclared() -> None:
    found = ["silver/old", "bronze/orders", "bronze/new", "quarantine/bronze/x"]
    found += ["inventory/bucket", "bronze", "bronze/deep/er"]
    assert undeclared_among(found, [ORDERS]) == ("bronze/new", "silver/old")
    assert undeclared_among(found, []) == ("bronze/new", "bronze/orders", "silver/old")
