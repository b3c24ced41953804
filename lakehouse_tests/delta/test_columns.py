"""Which types are wider, and how the members of two structs differ."""

import pytest

from lakehouse.delta.columns import is_wider, type_change


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
def test_a_wider_type_holds_every_value_exactly(before: str, after: str, wider: bool) -> None:
    assert is_wider(before, after) is wider


WHO, MORE = "struct<email:string,age:int>", "struct<email:string,city:string,age:bigint>"
NESTED = "map<string,array<struct<{}a:decimal(6,2)>>>"
B = ["value.element.b"]
A, AB = "map<struct<a:int>,int>", "map<struct<a:int,b:int>,int>"


@pytest.mark.parametrize(
    ("before", "after", "merged", "added", "left", "casts"),
    [
        (WHO, "struct<age:int,email:string>", WHO, [], [], []),
        (WHO, "struct<email:string>", WHO, [], ["age"], []),
        (WHO, MORE, MORE, ["city"], [], [("int", "bigint")]),
        (NESTED.format(""), NESTED.format("b:int,"), NESTED.format("b:int,"), B, [], []),
        (A, AB, AB, [], [], [(A, AB)]),
        ("string", WHO, WHO, [], [], [("string", WHO)]),
    ],
)
def test_members_of_structs_match_by_name_and_none_is_dropped(
    before: str,
    after: str,
    merged: str,
    added: list[str],
    left: list[str],
    casts: list[tuple[str, str]],
) -> None:
    change = type_change(before, after)
    assert change.merged == merged
    assert [each.name for each in change.added] == added
    assert [name for name, _ in change.left] == left
    assert list(change.casts) == casts
    assert change.is_possible == (not any("<" in type_ for pair in casts for type_ in pair))
