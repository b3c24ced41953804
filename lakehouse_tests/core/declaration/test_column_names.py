"""The names of the columns that a DDL string declares."""

import doctest

import pytest

from lakehouse.core.declaration import column_names
from lakehouse.core.declaration.column_names import field_names


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


def test_the_example_runs() -> None:
    assert doctest.testmod(column_names).failed == 0
