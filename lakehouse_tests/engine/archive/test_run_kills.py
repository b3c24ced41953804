"""Whenever an archive run is killed, each row is in one place, and the next run goes on from there."""

from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from lakehouse.core.units import DAY_MS
from lakehouse.engine.archive import commit, copies, run
from lakehouse.engine.archive.run import run_archive
from lakehouse.engine.clock import now_ms
from lakehouse.engine.lake import Lake
from lakehouse.engine.store import DiskStore
from lakehouse_tests.engine.archive.cases import (
    add_rows,
    archive_rows,
    contents_now,
    facts_now,
    session_of,
    table_rows,
)
from lakehouse_tests.kills import killed_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = [(10 * day + place, day) for day in range(1, 6) for place in range(2)]
LATE = (99, 1)
# The step at which the process dies, and whether its commit has been made by then.
STEPS: dict[str, tuple[ModuleType | type, str, str, bool]] = {
    "the operation is recorded": (run, "record_operation", "after", False),
    "the first file is copied": (DiskStore, "copy", "after", False),
    "the commit is expected": (commit, "expect_commit", "after", False),
    "the partitions are deleted": (run, "delete_partitions", "after", True),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_killed_run_leaves_each_row_in_one_place(
    lake: Lake, spark: "SparkSession", step: str
) -> None:
    owner, name, when, is_committed = STEPS[step]
    add_rows(lake, ROWS)
    with killed_at(owner, name, when):
        run_archive(session_of(lake, spark))
    archived = archive_rows(lake)
    assert sorted([*table_rows(lake), *archived]) == ROWS
    assert bool(archived) == is_committed
    # A late row makes the recorded files differ from those that the DELETE would remove.
    add_rows(lake, [LATE])
    run_archive(session_of(lake, spark))
    assert sorted([*table_rows(lake), *archive_rows(lake)]) == sorted([*ROWS, LATE])
    assert {row for row in table_rows(lake) if row[1] <= 1} == set()
    assert contents_now(lake).last_number == 1 + is_committed
    stored = {file.name for file in lake.store.list("archive")}
    kept = {file.archived for each in contents_now(lake).partitions for file in each.files}
    assert stored == kept


def test_an_operation_that_was_killed_is_finished_as_it_was_recorded(
    lake: Lake, spark: "SparkSession"
) -> None:
    """Its cutoff does not move with the rows that arrived since, and copies are not made twice."""
    add_rows(lake, ROWS)
    with killed_at(run, "delete_partitions", "before"):
        run_archive(session_of(lake, spark))
    add_rows(lake, [(1_000, 20)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DiskStore, "copy", lambda *_: pytest.fail("a file is copied again"))
        outcome = run_archive(session_of(lake, spark))
    assert outcome.plan.notes[0] == (
        "operation 1 (archive) was interrupted: this run finishes or withdraws it"
    )
    assert archive_rows(lake) == ROWS[:2]
    assert facts_now(lake).snapshot.transactions["lakehouse-archive"] == 1
    assert run_archive(session_of(lake, spark)).operation is not None
    assert table_rows(lake) == [(1_000, 20)]


def test_a_record_of_last_week_is_not_applied_but_made_again(
    lake: Lake, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """`keep_days` count from the record: its rows would soon be past their time in the archive, too."""
    add_rows(lake, ROWS)
    with killed_at(run, "delete_partitions", "before"):
        run_archive(session_of(lake, spark))
    later_ms = now_ms() + 8 * DAY_MS
    monkeypatch.setattr(run, "now_ms", lambda: later_ms)
    operation = run_archive(session_of(lake, spark)).operation
    assert operation is not None and (operation.number, operation.created_ms) == (1, later_ms)
    assert archive_rows(lake) == ROWS[:2]


def test_the_copies_of_a_withdrawn_operation_are_deleted(lake: Lake, spark: "SparkSession") -> None:
    """Another program deletes the rows before the run is repeated: nothing is left to move."""
    add_rows(lake, ROWS)
    with killed_at(copies, "_difference", "before"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(copies, "_REQUESTS_AT_ONCE", 1)
        run_archive(session_of(lake, spark))
    assert contents_now(lake).unapplied is not None
    spark.sql(
        f"DELETE FROM delta.`{lake.settings.table_uri('bronze/days')}` WHERE day < '2013-01-02'"
    )
    assert run_archive(session_of(lake, spark)).operation is None
    assert (contents_now(lake).last_number, contents_now(lake).unapplied) == (0, None)
    assert not lake.store.list("archive")
