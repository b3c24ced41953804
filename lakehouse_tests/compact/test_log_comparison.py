"""A compaction stands by what the log says of its rows, or every row is compared; the log is never guessed at."""

from typing import Any

import pytest

from lakehouse.compact.verify import Side, equal_by_log
from lakehouse_tests.log_builder import LogBuilder


def told(rows: int, low: Any, high: Any, nulls: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "numRecords": rows,
        "minValues": {"a": {"b": low}},
        "maxValues": {"a": {"b": high}},
        "nullCount": {"a": {"b": nulls}},
        **more,
    }


A, B = told(2, 1, 5, 1), told(3, 3, 9)
# Statistics of what one compaction of A and B wrote, and how many rows that stands for.
WRITTEN = {
    "the same": (told(5, 1, 9, 1), 5),
    "the same number in another spelling": (told(5, 1.0, 9.00, 1), 5),
    "a row lost": (told(4, 1, 9, 1), None),
    "a row doubled": (told(6, 1, 9, 1), None),
    "another least value": (told(5, 2, 9, 1), None),
    "another greatest value": (told(5, 1, 8, 1), None),
    "a value that became null": (told(5, 1, 9, 2), None),
    "bounds of another kind": (told(5, "1", "9", 1), None),
    "no rows known": (None, None),
    "no column known": ({"numRecords": 5}, 5),
    "wide bounds": (told(5, 0, 99, 0, tightBounds=False), 5),
    "no statistics at all": ({}, None),
}


@pytest.mark.parametrize(("written", "rows"), WRITTEN.values(), ids=WRITTEN)
@pytest.mark.parametrize("checkpoint", ["", "both", "json"])
def test_counts_bounds_and_nulls_are_compared(
    written: dict[str, Any] | None, rows: int | None, checkpoint: str
) -> None:
    log = LogBuilder().create().append([("a", 1, A), ("b", 1, B), ("other", 1, told(7, 0, 0))])
    assert compared(log, {"c": written}, checkpoint) == rows


def test_what_a_checkpoint_has_in_another_form_is_compared_by_counts_alone() -> None:
    log = LogBuilder().create().append([("a", 1, A), ("b", 1, B)])
    assert compared(log, {"c": told(5, 0, 0)}, "struct") == 5
    assert compared(log, {"d": told(4, 0, 0)}, "", ["c"]) is None


def test_deleted_rows_count_as_gone_and_loosen_the_bounds() -> None:
    log = LogBuilder().create().append([("a", 1, A), ("b", 1, B)]).delete_rows({"b": 2})
    assert compared(log, {"c": told(3, 1, 5, 1)}) == 3
    log = LogBuilder().create().append([("a", 1, A), ("b", 1, B)]).delete_rows({"b": 2})
    assert compared(log, {"c": told(5, 1, 9, 1)}) is None


@pytest.mark.parametrize(
    ("sizes", "rows"), [((2, 3), 5), ((3, 2), None), ((5,), None), ((2, 3, 1), None)]
)
def test_a_row_moved_to_another_partition_is_seen(sizes: tuple[int, ...], rows: int | None) -> None:
    log = LogBuilder().create(partition_by=["d"])
    log.append([("d=0/a", 1, 1), ("d=0/b", 1, 1), ("d=1/c", 1, 3)])
    written = {f"d={day}/new": {"numRecords": count} for day, count in enumerate(sizes)}
    assert compared(log, written, "", ["d=0/a", "d=0/b", "d=1/c"]) == rows


def test_a_file_whose_rows_nobody_counted_is_not_taken_for_empty() -> None:
    log = LogBuilder().create().append([("a", 1, None), ("b", 1, 3)])
    assert compared(log, {"c": {"numRecords": 3}}) is None


def test_a_value_that_changes_within_its_bounds_goes_unseen_as_the_docs_say() -> None:
    log = LogBuilder().create().append([("a", 1, told(3, 1, 9))])
    assert compared(log, {"b": told(3, 1, 9)}, "", ["a"]) == 3


def test_a_path_that_is_removed_and_added_again_is_left_to_the_comparison_of_rows() -> None:
    log = LogBuilder().create().append([("a", 1, told(3, 1, 9))])
    assert compared(log, {"a": told(3, 2, 8)}, "", ["a"]) is None


def test_a_log_that_cannot_be_read_tells_nothing() -> None:
    log = LogBuilder().create().append([("a", 1, A), ("b", 1, B)])
    before = log.snapshot()
    log.optimize(["a", "b"], into=("c", 1, told(5, 1, 9, 1)))
    log.store.put(log.commit_name(1), b"{")
    sides = (Side(version=1, files=before.files), Side(version=2, files=()))
    assert equal_by_log(log.store, before, *sides) is None


def compared(
    log: LogBuilder,
    written: dict[str, dict[str, Any] | None],
    checkpoint: str = "",
    removed: list[str] | None = None,
) -> int | None:
    """What the log says of a compaction of these files into `written`, with a checkpoint of each version, or none."""
    if checkpoint:
        log.checkpoint(stats=checkpoint)
    before, removed = log.snapshot(), removed or ["a", "b"]
    log.optimize(removed, into=[(path, 1, statistics) for path, statistics in written.items()])
    if checkpoint:
        log.checkpoint(stats=checkpoint)
    after = log.snapshot()
    old = tuple(file for file in before.files if file.path in removed)
    new = tuple(file for file in after.files if file.path in written)
    sides = (Side(version=before.version, files=old), Side(version=after.version, files=new))
    return equal_by_log(log.store, before, *sides)
