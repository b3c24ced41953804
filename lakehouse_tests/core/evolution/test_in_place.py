"""Changes by metadata alone: which ones, which features they switch on, and what readers lose."""

from dataclasses import replace

from lakehouse.core.evolution.declaration_changes import compare
from lakehouse.core.evolution.in_place import COLUMN_MAPPING, TYPE_WIDENING, in_place_changes
from lakehouse_tests.core.evolution.test_declaration_changes import (
    LANDED,
    SAME,
    TABLE,
    columns,
    renamed,
)

TABLE_IN_PLACE = replace(TABLE, properties={COLUMN_MAPPING: "name", TYPE_WIDENING: "true"})
DECLARED = columns(SAME.replace("n int", "number bigint").replace("decimal(6,2)", "decimal(8,2)"))
PLAN = compare(renamed({"n": "number"}), DECLARED, TABLE)


def test_nothing_changes_in_place_unless_it_is_asked_for_or_the_table_has_the_feature() -> None:
    assert in_place_changes(PLAN, TABLE, drop=("x",)).is_empty
    asked = in_place_changes(PLAN, TABLE, drop=("x",), is_asked=True)
    assert asked.properties == ((COLUMN_MAPPING, "name"), (TYPE_WIDENING, "true"))
    assert asked.sentences == (
        "renamed n to number",
        "widened number to bigint",
        "widened price to decimal(8,2)",
        "dropped x",
    )
    assert [sentence.partition(" needs")[0] for sentence in asked.loses] == [
        "column mapping",
        "type widening",
    ]
    has_both = in_place_changes(PLAN, TABLE_IN_PLACE, drop=("x",))
    assert (has_both.properties, has_both.loses) == ((), ())
    assert has_both.sentences == asked.sentences


def test_a_feature_is_switched_on_only_for_the_changes_that_need_it() -> None:
    wider = columns(SAME.replace("n int", "n bigint"))
    plan = compare(LANDED, wider, TABLE)
    asked = in_place_changes(plan, TABLE, is_asked=True)
    assert asked.properties == ((TYPE_WIDENING, "true"),)
    narrower = compare(LANDED, columns(SAME.replace("id bigint", "id int")), TABLE)
    assert in_place_changes(narrower, TABLE, is_asked=True).is_empty
