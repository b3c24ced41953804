"""The names of the columns that a DDL string declares."""

import pytest

from lakehouse.delta.columns import field_names, struct_types


@pytest.mark.parametrize(
    ("ddl", "names"),
    [
        ("id STRING", ("id",)),
        ("id STRING, at TIMESTAMP NOT NULL COMMENT 'a, b'", ("id", "at")),
        ("a STRUCT<b: INT, c: MAP<STRING, INT>>, d DECIMAL(10, 2)", ("a", "d")),
        ("`a, b` INT, `c``d` INT", ("a, b", "c`d")),
        ("a: INT, b:STRING", ("a", "b")),
        ("id\tSTRING,\n  day DATE", ("id", "day")),
        ("", ()),
        ("id", ()),
        ("id STRING,", ()),
        ("id STRING,, day DATE", ()),
        ("a-b STRING", ()),
    ],
)
def test_top_level_fields_are_found(ddl: str, names: tuple[str, ...]) -> None:
    assert field_names(ddl) == names


@pytest.mark.parametrize(
    ("type_", "members"),
    {
        "a comment with brackets": (
            "STRUCT<a: INT COMMENT 'x, > 0', b: INT>",
            {"a": "INT COMMENT 'x, > 0'", "b": "INT"},
        ),
        "an open bracket": (
            "struct<a INT COMMENT 'x < 0', b: DATE> NOT NULL",
            {"a": "INT COMMENT 'x < 0'", "b": "DATE"},
        ),
        "a quote behind a backslash": (
            r"STRUCT<a: INT COMMENT 'it\'s >', b: INT>",
            {"a": r"INT COMMENT 'it\'s >'", "b": "INT"},
        ),
        "a doubled quote": (
            "STRUCT<a: INT COMMENT 'it''s >', b: INT>",
            {"a": "INT COMMENT 'it''s >'", "b": "INT"},
        ),
        "double quotes": (
            'STRUCT<a: INT COMMENT "\'>", b: INT>',
            {"a": 'INT COMMENT "\'>"', "b": "INT"},
        ),
        "a name with brackets": ("STRUCT<`a>b`: INT, `c``,<`: INT>", {"a>b": "INT", "c`,<": "INT"}),
        "a quote that is not closed": ("STRUCT<a: INT COMMENT 'x>", {"a": "INT COMMENT 'x>"}),
        "none": ("ARRAY<STRUCT<a: INT>>", {}),
    }.values(),
)
def test_the_members_of_a_struct_are_found(type_: str, members: dict[str, str]) -> None:
    assert struct_types(type_) == members
