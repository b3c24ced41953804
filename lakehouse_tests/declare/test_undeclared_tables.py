"""A table that no declaration names is named, with what to do."""

from lakehouse import Append, Landing, Table
from lakehouse.declare.table import undeclared_among, undeclared_sentence

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


def test_the_sentence_names_ten_tables_and_escapes_their_names() -> None:
    assert undeclared_sentence([]) == ""
    named = undeclared_sentence(["gold/\x1b", *(f"gold/t{number}" for number in range(11))])
    assert named.startswith("undeclared tables in the lake, which nothing maintains: gold/\\x1b, ")
    assert "gold/t8 and 2 more. Declare them again" in named
