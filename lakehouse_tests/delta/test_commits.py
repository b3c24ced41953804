"""A history answers only for the commits that it holds."""

from dataclasses import replace

import pytest

from lakehouse.delta.commits import Commit, Commits, may_repeat_rows
from lakehouse_tests.support.example_snapshots import history

CHANGED = {
    "rows after it": (history(True, False, True), 1, True),
    "compactions after it": (history(True, False, False), 0, False),
    "nothing after it": (history(True, True), 1, False),
    "the commits right after it are gone": (history(True, True, first=5), 3, None),
    "just not gone": (history(False, True, first=5), 4, True),
    "it is newer than all": (history(True, True), 5, None),
    "no commit is left": (history(), 0, None),
}


@pytest.mark.parametrize(("past", "version", "changed"), CHANGED.values(), ids=CHANGED)
def test_rows_changed_after_a_version(past: Commits, version: int, changed: bool | None) -> None:
    assert past.data_changed_after(version) is changed


@pytest.mark.parametrize(
    ("version", "upto", "found"),
    [(4, 6, [5, 6]), (5, 5, []), (6, 5, None), (3, 6, None), (5, 8, None), (6, 7, [7])],
)
def test_the_commits_between_two_versions_are_all_there_or_unknown(
    version: int, upto: int, found: list[int] | None
) -> None:
    between = history(True, True, True, first=5).between(version, upto)
    assert (None if between is None else [commit.version for commit in between]) == found


def test_the_file_counts_are_told_backwards_from_the_newest() -> None:
    told = [(3, 0, True), (1, 4, False), (2, 2, True), (9, 0, False)]
    commits = tuple(_changed("X", *counts, changed_data=changed) for *counts, changed in told)
    assert Commits(table="bronze/t", commits=commits).file_counts(7) == (10, 7, 7, 7)


# Versions after a compaction, which is 3: each a RESTORE of ours to that version, or a write; what the newest lacks.
UNDOINGS = {
    "undone": ([2], []),
    "a write between, taken away": ([None, 2], [4]),
    "and given back": ([None, 2, 4], []),
    "while another was written": ([None, 2, None, 4], [6]),
    "which was given back in turn": ([None, 2, None, 4, 6], [4]),
    "a write after it stays": ([2, None], []),
    "nothing was undone": ([None], []),
}


@pytest.mark.parametrize(("later", "missing"), UNDOINGS.values(), ids=UNDOINGS)
def test_what_our_restores_took_from_others_is_told(
    later: list[int | None], missing: list[int]
) -> None:
    commits = [_changed("WRITE", 1, 0)] * (4 + len(later))
    for number, restored in enumerate(later, 4):
        if restored is not None:
            told = f'{{"restored": {restored}}}'
            at = {"version": str(restored)}
            commits[number] = _changed("RESTORE", 1, 0, user_metadata=told, parameters=at)
    numbered = (replace(commit, version=number) for number, commit in enumerate(commits))
    past = Commits(table="bronze/t", commits=tuple(numbered))
    assert past.missing_after(3) == tuple(missing)


# Every operation of Delta that can add files with a change of data, with the files that it adds and removes: whether a reader of changes
# may be told rows anew that it had before. Source: delta-io/delta v4.4.0, DeltaOperations.scala
OPERATIONS = {
    "an append": ("WRITE", 1, 0, False),
    "an overwrite": ("WRITE", 1, 1, True),
    "the overwrite of an empty table": ("WRITE", 1, 0, False),
    "an overwrite by nothing": ("WRITE", 0, 1, False),
    "a stream that appends": ("STREAMING UPDATE", 1, 0, False),
    "a stream in complete mode": ("STREAMING UPDATE", 1, 1, True),
    "a DELETE that leaves rows": ("DELETE", 1, 1, False),
    "a TRUNCATE": ("TRUNCATE", 0, 1, False),
    "an UPDATE": ("UPDATE", 1, 1, False),
    "a MERGE": ("MERGE", 1, 1, False),
    "a RESTORE that brings files back": ("RESTORE", 1, 0, True),
    "a RESTORE of deleted rows": ("RESTORE", 1, 1, True),
    "a RESTORE that only takes files": ("RESTORE", 0, 1, False),
    "a CLONE into an emptied table": ("CLONE", 1, 0, True),
    "a table that was replaced": ("CREATE OR REPLACE TABLE AS SELECT", 1, 1, True),
    "a table that was made": ("CREATE TABLE AS SELECT", 1, 0, False),
    "a conversion": ("CONVERT", 1, 0, False),
    "a change by hand": ("Manual Update", 1, 1, True),
    "somebody who does not say": ("UNKNOWN", 1, 1, True),
}


def _changed(operation: str, added: int, removed: int, **more: object) -> Commit:
    paths = {"added_paths": ("added",) * added, "removed_paths": ("removed",) * removed}
    return Commit(
        version=1, committed_ms=0, operation=operation, **{"changed_data": True, **paths, **more}
    )  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("operation", "added", "removed", "repeats"), OPERATIONS.values(), ids=OPERATIONS
)
def test_which_operations_may_tell_rows_a_second_time(
    operation: str, added: int, removed: int, repeats: bool
) -> None:
    assert may_repeat_rows(_changed(operation, added, removed)) is repeats
    assert not may_repeat_rows(_changed(operation, added, removed, changed_data=False))


OURS = [
    {"operation": "WRITE", "applications": ("lakehouse/ingest/bronze/t",)},
    {"operation": "WRITE", "user_metadata": '{"inputs":{}}'},
    {"operation": "RESTORE", "user_metadata": '{"restored":0}'},
]


@pytest.mark.parametrize("mark", OURS)
def test_what_this_lake_overwrites_is_followed_as_it_is(mark: dict[str, str]) -> None:
    theirs = {"applications": {"somebody": 1}, "user_metadata": '{"restored":true}'}
    assert not may_repeat_rows(_changed(added=1, removed=1, **mark))  # type: ignore[arg-type]
    assert may_repeat_rows(_changed(mark["operation"], 1, 1, **theirs))
