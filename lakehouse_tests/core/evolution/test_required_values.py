"""Rows that lack a required column are counted by the log, and an unknown count is never zero."""

from dataclasses import replace

import pytest

from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.core.evolution.required_values import needs_statistics, required_missing
from lakehouse_tests.log_builder import LogBuilder

COLUMNS = {"id": "long", "name": "string", "d": "string"}


def table() -> LogBuilder:
    """Ten rows in each of three files, one of them in no partition."""
    story = LogBuilder().create(columns=COLUMNS, partition_by=["d"])
    null = "d=__HIVE_DEFAULT_PARTITION__"
    return story.append([("d=1/a", 1, 10), ("d=1/b", 1, 10), (f"{null}/c", 1, 10)])


def missing(snapshot: Snapshot, **nulls: int) -> int | None:
    """The rows that lack `name`, if these files have so many nulls of it."""
    paths = {file.path.rpartition("/")[2]: file.path for file in snapshot.files}
    null_counts = {paths[name]: {"name": count} for name, count in nulls.items()}
    return required_missing(snapshot, ["name"], null_counts)["name"]


def test_nulls_are_summed_over_all_files_and_unknown_if_one_file_has_no_count() -> None:
    snapshot = table().snapshot()
    assert missing(snapshot, a=0, b=0, c=0) == 0
    assert missing(snapshot, a=1, b=0, c=10) == 11
    assert missing(snapshot, a=0, b=0) is None
    assert missing(snapshot) is None
    assert missing(LogBuilder().create(columns=COLUMNS).snapshot()) == 0


DELETED = {
    "none of them": (0, 0),
    "some of them, which may be among the deleted rows": (3, None),
    "all of them": (10, 6),
}


@pytest.mark.parametrize(("nulls", "rows"), DELETED.values(), ids=DELETED)
def test_deleted_rows_do_not_count(nulls: int, rows: int | None) -> None:
    snapshot = table().delete_rows({"d=1/a": 4}).snapshot()
    assert missing(snapshot, a=nulls, b=0, c=0) == rows
    gone = table().delete_rows({"d=1/a": 10}).snapshot()
    assert missing(gone, a=nulls, b=0, c=0) == 0


def test_a_partition_column_and_one_that_the_table_lacks_need_no_statistics() -> None:
    snapshot = table().delete_rows({"d=__HIVE_DEFAULT_PARTITION__/c": 4}).snapshot()
    assert required_missing(snapshot, ["d", "other"], {}) == {"d": 6, "other": 26}
    assert not needs_statistics(snapshot, ["d", "other"])
    assert needs_statistics(snapshot, ["d", "name"])
    unknown = table().append([("d=1/x", 1, None)]).snapshot()
    assert required_missing(unknown, ["d", "other"], {}) == {"d": 10, "other": None}
    assert missing(unknown, a=0, b=0, c=0, x=0) == 0


def test_under_column_mapping_files_may_name_another_column_so() -> None:
    snapshot = replace(table().snapshot(), properties={"delta.columnMapping.mode": "name"})
    assert missing(snapshot, a=0, b=0, c=0) is None
    assert not needs_statistics(snapshot, ["name"])
    assert required_missing(snapshot, ["d"], {}) == {"d": 10}
