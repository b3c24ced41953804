"""A declaration that no longer fits its table: what is added, what is replaced with the rows, and what is refused."""

import pytest

from lakehouse.core.declaration.schema_changes import differences, new_columns
from lakehouse.core.delta.snapshot import Column, LogTail, Snapshot
from lakehouse.core.errors import Refused

LOG = LogTail(checkpoint_version=None, commit_count=1, commit_bytes=1)


def columns(text: str) -> tuple[Column, ...]:
    return tuple(
        Column(name=name, type=type_) for name, type_ in (each.split() for each in text.split(", "))
    )


TABLE = Snapshot(
    table="bronze/t",
    uri="t",
    version=3,
    committed_ms=0,
    files=(),
    log=LOG,
    columns=columns("id bigint, city string, _source_file string"),
    partition_columns=("city",),
)


@pytest.mark.parametrize(
    ("declared", "added"),
    [
        ("id bigint, city string, _source_file string", []),
        ("city string, id bigint, _source_file string", []),
        ("id bigint, city string, zip int, _source_file string", [("zip", "city")]),
        ("zip int, id bigint, city string, _source_file string", [("zip", None)]),
        (
            "id bigint, a int, b struct<x:int>, city string, _source_file string, c date",
            [("a", "id"), ("b", "a"), ("c", "_source_file")],
        ),
    ],
)
def test_a_column_that_the_table_lacks_is_added_behind_the_one_declared_before_it(
    declared: str, added: list[tuple[str, str | None]]
) -> None:
    found = new_columns(columns(declared), ("city",), TABLE)
    assert [(each.column.name, each.after) for each in found] == added


@pytest.mark.parametrize(
    ("declared", "partition_by", "why"),
    {
        "a column less": (
            "id bigint, _source_file string",
            ("city",),
            "city is not declared and string in the table",
        ),
        "another type, beside a new column": (
            "id int, zip int, city string, _source_file string",
            ("city",),
            "id is declared as int and bigint in the table",
        ),
        "another case, which Spark takes for the same name": (
            "id bigint, City string, _source_file string",
            ("city",),
            "City is declared as string and absent in the table; city is not declared and string in the table",
        ),
        "other partitions": (
            "id bigint, city string, _source_file string",
            (),
            "the declared partitioning is by nothing, that of the table by city",
        ),
    }.values(),
)
def test_every_other_difference_is_refused_and_named(
    declared: str, partition_by: tuple[str, ...], why: str
) -> None:
    with pytest.raises(Refused) as error:
        new_columns(columns(declared), partition_by, TABLE)
    assert str(error.value) == (
        f"write of bronze/t: the declaration and the table differ: {why}. Nothing was written. Either "
        "restore the declaration, or declare the table under a new key"
    )
    assert (
        "; ".join(differences(columns(declared), partition_by, TABLE)).endswith(why)
        or "zip" in declared
    )
