"""Which changes of a type keep every value, so that they need no rewrite."""

import pytest

from lakehouse.core.evolution.type_widening import is_wider


@pytest.mark.parametrize(
    ("before", "after", "wider"),
    [
        ("tinyint", "bigint", True),
        ("bigint", "int", False),
        ("int", "int", False),
        ("float", "double", True),
        ("double", "float", False),
        ("int", "double", True),
        ("bigint", "double", False),
        ("date", "timestamp_ntz", True),
        ("date", "timestamp", False),
        ("decimal(6,2)", "decimal(8,2)", True),
        ("decimal(6,2)", "decimal(8,4)", True),
        ("decimal(6,2)", "decimal(7,4)", False),
        ("decimal(6,2)", "decimal(6,2)", False),
        ("int", "decimal(10,0)", True),
        ("int", "decimal(10,2)", False),
        ("tinyint", "decimal(10,0)", True),
        ("smallint", "decimal(9,0)", False),
        ("bigint", "decimal(20,0)", True),
        ("bigint", "decimal(20,1)", False),
        ("string", "int", False),
        ("int", "string", False),
    ],
)
def test_a_type_is_wider_if_it_holds_every_value_exactly(
    before: str, after: str, wider: bool
) -> None:
    assert is_wider(before, after) is wider
