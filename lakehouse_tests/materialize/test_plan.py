"""What is read of an input, for every state that its history can be in."""

import json
from dataclasses import replace

import pytest

from lakehouse import Append, Landing, Merge, Table
from lakehouse.base.errors import Refused
from lakehouse.base.reasons import Reason
from lakehouse.delta.commits import Commits, may_repeat_rows
from lakehouse.materialize.plan import (
    FIRST_READ,
    Increment,
    NothingNew,
    ReadAll,
    ReadChanges,
    Reader,
    changes_lost,
    check_written_alike,
    has_followed,
    plan_increment,
    still_consumed,
)
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.memory_store import MemoryStore
from lakehouse_tests.support.example_snapshots import history

READ_WHOLE, NOTHING = (ReadAll, None), (NothingNew, None)
REASONS = {
    ReadAll: Reason.INPUT_READ_WHOLE,
    NothingNew: Reason.INPUTS_UNCHANGED,
    ReadChanges: Reason.INPUTS_CHANGED,
}
THREE = history(True, True, True)
# consumed, pinned version, history -> (what is read, from)
STORIES = {
    "never read": (None, 2, THREE, READ_WHOLE),
    "never read, and its log begins late": (None, 9, history(True, first=9), READ_WHOLE),
    "the same version": (2, 2, THREE, NOTHING),
    "one commit more": (1, 2, THREE, (ReadChanges, 2)),
    "many commits more": (0, 2, THREE, (ReadChanges, 1)),
    "compactions only": (0, 2, history(True, False, False), NOTHING),
    "rows between compactions": (0, 3, history(True, False, True, False), (ReadChanges, 2)),
    "commits newer than the pinned version": (1, 1, THREE, NOTHING),
    "the log still holds just enough": (4, 6, history(True, True, first=5), (ReadChanges, 5)),
    "the log begins too late": (3, 6, history(True, True, first=5), READ_WHOLE),
    "the log tells nothing": (3, 6, history(), READ_WHOLE),
    "nothing told, nothing needed": (6, 6, history(), NOTHING),
    "the table was made anew": (9, 2, THREE, READ_WHOLE),
    "the history is older than the pinned version": (1, 5, THREE, READ_WHOLE),
}


@pytest.mark.parametrize(("consumed", "version", "past", "wanted"), STORIES.values(), ids=STORIES)
def test_an_increment(
    consumed: int | None, version: int, past: Commits, wanted: tuple[type, int | None]
) -> None:
    found = plan_increment(consumed, version, past, Reader())
    assert (type(found), getattr(found, "first", None)) == wanted
    assert (getattr(found, "upto", version), found.reason) == (version, REASONS[wanted[0]])
    if isinstance(found, ReadAll):
        why = FIRST_READ if consumed is None else changes_lost(consumed)
        assert found.sentence == f"all of version {version} of bronze/t is read: {why}"
    assert "bronze/t" in found.sentence
    assert str(version if consumed is None else consumed) in found.sentence


def _undone(
    *,
    consumed: int,
    upto: int,
    is_whole: bool,
    restored: str | None = '{"restored":1}',
    after: bool = True,
) -> Increment:
    """Versions 0 and 1 with rows, 2 and 3 a compaction's, 4 the RESTORE of version 1, 5 with rows or without."""
    commits = history(True, True, False, False, True, after).commits
    undoing = replace(commits[4], operation="RESTORE", user_metadata=restored)
    past = Commits(table="bronze/t", commits=(*commits[:4], undoing, commits[5]))
    return plan_increment(consumed, upto, past, Reader(may_hold_all=is_whole))


@pytest.mark.parametrize(
    ("consumed", "upto", "ranges"),
    [
        (0, 5, ((1, 3), (5, 5))),
        (0, 4, ((1, 3),)),
        (0, 3, ((1, 3),)),
        *((consumed, 5, ((5, 5),)) for consumed in (1, 2, 3, 4)),
    ],
)
def test_who_follows_changes_passes_over_the_undoing_of_a_compaction(
    consumed: int, upto: int, ranges: tuple[tuple[int, int], ...]
) -> None:
    found = _undone(consumed=consumed, upto=upto, is_whole=False)
    assert isinstance(found, ReadChanges) and found.ranges == ranges


@pytest.mark.parametrize("consumed", [1, 2, 3, 4])
def test_a_compaction_and_its_undoing_are_no_news(consumed: int) -> None:
    assert isinstance(_undone(consumed=consumed, upto=4, is_whole=False), NothingNew)
    assert isinstance(_undone(consumed=consumed, upto=5, is_whole=False, after=False), NothingNew)


@pytest.mark.parametrize(
    ("consumed", "kind"), [(1, NothingNew), (2, ReadAll), (3, ReadAll), (4, NothingNew)]
)
def test_who_read_rows_of_an_undone_compaction_reads_again(consumed: int, kind: type) -> None:
    found = _undone(consumed=consumed, upto=4, is_whole=True)
    assert isinstance(found, kind)
    assert found.reason is (Reason.INPUT_READ_WHOLE if kind is ReadAll else Reason.INPUTS_UNCHANGED)
    assert kind is not ReadAll or "a compaction that was undone since" in found.sentence


@pytest.mark.parametrize("metadata", [None, "", "{}", '{"restored":"1"}', '{"compaction":"x"}'])
def test_a_restore_of_somebody_else_is_news(metadata: str | None) -> None:
    found = _undone(consumed=1, upto=5, is_whole=False, restored=metadata)
    assert isinstance(found, ReadChanges) and found.ranges == ((4, 5),)


@pytest.mark.parametrize(
    ("consumed", "upto", "is_append", "reason"),
    [
        (1, 5, True, Reason.INPUT_REPLACED),
        (2, 3, True, Reason.INPUT_REPLACED),
        (3, 5, True, Reason.INPUTS_CHANGED),
        (1, 2, True, Reason.INPUTS_CHANGED),
        (1, 5, False, Reason.INPUTS_CHANGED),
    ],
)
def test_who_appends_never_reads_past_rows_that_it_may_have_had(
    consumed: int, upto: int, is_append: bool, reason: Reason
) -> None:
    commits = list(history(*[True] * 6).commits)
    commits[3] = replace(commits[3], operation="RESTORE", added_paths=("a",))
    past = Commits(table="bronze/t", commits=tuple(commits))
    found = plan_increment(consumed, upto, past, Reader(is_append=is_append))
    assert found.reason == reason
    assert isinstance(found, ReadAll if reason is Reason.INPUT_REPLACED else ReadChanges)
    if reason is Reason.INPUT_REPLACED:
        assert found.sentence.startswith(
            "version 3 of bronze/t is a RESTORE by another program, which may bring back rows"
        )


def test_an_input_that_was_made_anew_is_read_whole_and_the_sentence_says_so() -> None:
    found = plan_increment(None, 5, history(*[True] * 6), Reader(read_another=True))
    why = "it was created again since it was last read"
    assert isinstance(found, ReadAll)
    assert found.sentence == f"all of version 5 of bronze/t is read: {why}"


def _rebuilt(rows: str, *, started_from: int = 1, **more: object) -> Commits:
    """Versions 0, 1 and 2 with rows, 3 a rebuild, 4 with rows."""
    commits = list(history(*[True] * 5).commits)
    written = {"rebuild": {"from": started_from, "rows": rows}, **more}
    commits[3] = replace(
        commits[3],
        added_paths=("b",),
        removed_paths=("a",),
        applications={"lakehouse/consume/bronze/i/id": 7},
        user_metadata=json.dumps(written),
    )
    return Commits(table="bronze/t", commits=tuple(commits))


@pytest.mark.parametrize(
    ("consumed", "upto", "ranges"),
    [(2, 3, None), (3, 4, ((4, 4),)), (2, 4, ((4, 4),)), (1, 4, ((2, 2), (4, 4)))],
)
def test_a_rebuild_with_the_same_rows_is_passed_over(
    consumed: int, upto: int, ranges: tuple[tuple[int, int], ...] | None
) -> None:
    found = plan_increment(consumed, upto, _rebuilt("same"), Reader(is_append=True))
    assert (found.ranges if isinstance(found, ReadChanges) else None) == ranges


def test_a_rebuild_with_new_rows_is_merged_and_never_appended() -> None:
    past = _rebuilt("new")
    merged = plan_increment(2, 4, past, Reader())
    assert isinstance(merged, ReadChanges) and merged.ranges == ((3, 4),)
    appended = plan_increment(2, 4, past, Reader(is_append=True))
    assert appended.sentence.startswith(
        "version 3 of bronze/t is a rebuild from its inputs, which may bring back rows"
    )
    assert not may_repeat_rows(_rebuilt("new", inputs={}).commits[3])  # like any overwrite of ours


@pytest.mark.parametrize("metadata", ['{"rebuild":1}', '{"rebuild":{"from":"1"}}', "[]", "{"])
def test_a_commit_that_only_looks_like_a_rebuild_is_news(metadata: str) -> None:
    past = _rebuilt("same")
    commits = [*past.commits]
    commits[3] = replace(commits[3], user_metadata=metadata)
    found = plan_increment(2, 4, replace(past, commits=tuple(commits)), Reader())
    assert isinstance(found, ReadChanges) and found.ranges == ((3, 4),)


@pytest.mark.parametrize("what", ["archive", "restore", "ttl"])
def test_rows_that_upkeep_moves_are_no_change_for_readers(what: str) -> None:
    past = history(True, True, True, True)
    commits = [*past.commits]
    commits[2] = replace(
        commits[2],
        operation="DELETE" if what != "restore" else "WRITE",
        user_metadata=json.dumps({"rows_moved": what}),
    )
    moved = replace(past, commits=tuple(commits))
    between = plan_increment(0, 3, moved, Reader(is_append=True))
    assert isinstance(between, ReadChanges) and between.ranges == ((1, 1), (3, 3))
    assert isinstance(plan_increment(1, 2, moved, Reader(is_append=True)), NothingNew)
    foreign = replace(moved.commits[2], user_metadata='{"rows_moved":["archive"]}')
    read = plan_increment(
        1, 2, replace(past, commits=(*past.commits[:2], foreign)), Reader(is_append=True)
    )
    assert isinstance(read, ReadChanges) and read.ranges == ((2, 2),)


LANDED = Table(
    key="bronze/i",
    source=Landing(prefix="landing/i/", format="json", schema="id BIGINT"),
    write=Append(),
)
MERGED = Table(
    key="bronze/t",
    inputs=(LANDED,),
    transform=lambda i: i,
    write=Merge(keys=("id",), order_by=("at",)),
)


@pytest.mark.parametrize(
    ("rows", "keys", "renamed", "is_alike"),
    [
        ("new", ["id"], {}, True),
        ("same", ["id"], {}, True),
        ("new", ["key"], {}, False),
        ("new", None, {}, False),
        ("same", ["key"], {"key": "id"}, True),
    ],
)
def test_a_rebuilt_table_goes_on_only_with_the_keys_of_its_rebuild(
    rows: str, keys: list[str] | None, renamed: dict[str, str], is_alike: bool
) -> None:
    table = replace(MERGED, renamed=renamed)
    commits = [*reversed(_rebuilt(rows, keys=keys).commits)]
    if is_alike:
        check_written_alike(table, commits)
        return
    with pytest.raises(Refused, match="Use `lakehouse rebuild bronze/t`"):
        check_written_alike(table, commits)


def test_a_rebuild_ends_what_was_followed_before() -> None:
    """At the consumed version, the table has the input's rows, not the changes that led to them."""
    read = LogBuilder(MemoryStore(), "bronze/i").create().append([("a", 1)]).snapshot()
    app_id = f"lakehouse/consume/bronze/i/{read.table_id}"
    commits = [*_rebuilt("new").commits]
    commits[1] = replace(commits[1], applications={app_id: 3})
    assert not has_followed(read, reversed(commits))
    commits[4] = replace(commits[4], applications={app_id: 9})
    assert has_followed(read, reversed(commits))
    kept = [*_rebuilt("same").commits]
    kept[1] = replace(kept[1], applications={app_id: 3})
    assert has_followed(read, reversed(kept))


@pytest.mark.parametrize(
    ("restored", "rebuilt", "version"),
    [
        ({"version": "0"}, False, None),
        ({"version": "1"}, False, 3),
        ({"version": "2"}, False, 5),
        ({"timestamp": "2026-01-01"}, False, None),
        ({"version": "1"}, True, 5),
    ],
)
def test_after_a_restore_a_table_has_consumed_less(
    restored: dict[str, str], rebuilt: bool, version: int | None
) -> None:
    app_id = "lakehouse/consume/bronze/i/other"
    commits = [*_rebuilt("new" if rebuilt else "same").commits]
    commits[1] = replace(commits[1], applications={app_id: 3})
    commits[2] = replace(commits[2], applications={app_id: 5})
    restore = replace(commits[4], operation="RESTORE", parameters=restored)
    # Versions 0 to 2 with rows; then the RESTORE and the rebuild, in this order.
    commits = [*commits[:3], replace(restore, version=3), replace(commits[3], version=4)]
    assert still_consumed(app_id, 5, reversed(commits)) == version
