"""Archived files are deleted when their time is over, and never while the archive has them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from lakehouse import Archive, Table
from lakehouse.core.archive.expire import ExpireOutcome
from lakehouse.core.errors import Broken
from lakehouse.core.units import DAY_MS
from lakehouse.engine.archive import expire as module
from lakehouse.engine.archive.commit import verify_delete
from lakehouse.engine.archive.expire import expire, rehearse_expire
from lakehouse.engine.archive.records import (
    archive_contents,
    archive_operations,
    expect_commit,
    record_operation,
)
from lakehouse.engine.clock import now_ms
from lakehouse.engine.ingest.late_rows import _cutoff_ms
from lakehouse.engine.lake import Lake, open_lake
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.engine.archive import by_hand
from lakehouse_tests.engine.example import add_events, event, events, facts_of
from lakehouse_tests.kills import killed_at

TABLE = replace(events, archive=Archive(keep_days=10))
KEY = TABLE.key
DAY_1, DAY_2, DAY_3 = "2013-01-01", "2013-01-02", "2013-01-03"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake on disk whose table has three days."""
    lake = open_lake(own_settings(tmp_path))
    add_events(lake, *(event(day, 5, "a", day=day) for day in (1, 2, 3)))
    return lake


def stored(lake: Lake) -> list[str]:
    """The partitions of the archived files in storage."""
    return [file.name.split("/")[3] for file in lake.store.list(f"archive/{KEY}")]


def held(lake: Lake) -> list[str]:
    """The days that the archive has."""
    partitions = archive_contents(lake, facts_of(lake, KEY)).partitions
    return sorted(str(each.partition[0][1]) for each in partitions)


def expired(lake: Lake, table: Table = TABLE) -> ExpireOutcome:
    outcome = expire(lake, table)
    assert outcome is not None
    return outcome


def test_a_partition_goes_with_all_its_files_when_its_last_rows_are_old_enough(lake: Lake) -> None:
    """A dry run names the files. What has left the archive is not deleted twice."""
    old_ms = now_ms() - 11 * DAY_MS
    by_hand.archive(lake, KEY, DAY_1, DAY_2, created_ms=old_ms)
    add_events(lake, event(9, 6, "late", day=2))
    late = by_hand.archive(lake, KEY, DAY_2, created_ms=now_ms() - 9 * DAY_MS)
    plan = rehearse_expire(lake, TABLE)
    assert plan is not None and [*plan.files] == [
        file.archived
        for file in archive_operations(lake.store, KEY)[0].files
        if DAY_1 in file.archived
    ]
    assert plan.next_ms == late.created_ms + 10 * DAY_MS
    assert stored(lake) == [f"day={DAY_1}", f"day={DAY_2}", f"day={DAY_2}"]
    outcome = expired(lake)
    assert outcome.sentence.startswith("deleted 1 archived file (")
    assert (outcome.deleted_files, outcome.deleted_bytes) == (1, plan.size_bytes)
    assert stored(lake) == [f"day={DAY_2}"] * 2 and held(lake) == [DAY_2, DAY_2]
    assert [each.kind for each in archive_operations(lake.store, KEY)] == [
        "archive",
        "archive",
        "expire",
    ]
    again = expired(lake)
    assert again.sentence.startswith("nothing to delete: the next partition expires on ")
    assert len(archive_operations(lake.store, KEY)) == 3


def test_a_table_without_a_declared_archive_keeps_its_archive(lake: Lake) -> None:
    by_hand.archive(lake, KEY, DAY_1)
    outcome = expired(lake, replace(TABLE, archive=None))
    assert outcome.sentence == "nothing to delete: no archived partition expires"
    assert held(lake) == [DAY_1]


def test_nothing_is_deleted_while_an_operation_is_interrupted(lake: Lake) -> None:
    """Otherwise numbers of operations would be taken before the interrupted one is settled."""
    by_hand.archive(lake, KEY, DAY_1)
    by_hand.copied(lake, KEY, DAY_2)
    assert "Use `lakehouse archive run bronze/events`" in expired(lake).sentence
    assert stored(lake) == [f"day={DAY_1}", f"day={DAY_2}"]


def test_days_count_from_the_commit_if_its_record_is_older(lake: Lake) -> None:
    """A run that waited, or a clock that was behind, must not make rows leave table and archive at once."""
    operation = by_hand.copied(lake, KEY, DAY_1, created_ms=now_ms() - 11 * DAY_MS)
    by_hand.apply(lake, KEY, operation, [DAY_1], at_record=False)
    outcome = expired(lake)
    assert outcome.sentence.startswith("nothing to delete: the next partition expires on ")
    assert (stored(lake), held(lake)) == ([f"day={DAY_1}"], [DAY_1])


def records_of(lake: Lake) -> list[tuple[int, str]]:
    return [(each.number, each.kind) for each in archive_operations(lake.store, KEY)]


def forget_log(lake: Lake) -> int:
    """What the cleanup of a log does; returns the only version that is left."""
    table = DeltaTable(lake.settings.table_uri(KEY))
    table.create_checkpoint()
    for version in range(table.version()):
        lake.store.delete([f"{KEY}/_delta_log/{version:020}.json"])
    return table.version()


def test_records_are_folded_when_nothing_needs_them(lake: Lake) -> None:
    """Two partitions were archived 99 days ago and are gone, and the third one is new."""
    old_ms = now_ms() - 99 * DAY_MS
    by_hand.archive(lake, KEY, DAY_1, created_ms=old_ms)
    by_hand.archive(lake, KEY, DAY_2, created_ms=old_ms)
    expired(lake)
    assert records_of(lake) == [(1, "archive"), (2, "archive"), (3, "expire")]
    by_hand.archive(lake, KEY, DAY_3, created_ms=now_ms())
    expired(lake)
    assert len(records_of(lake)) == 4  # a RESTORE could still bring their files back
    forget_log(lake)
    first = lake.store.read(f"_lakehouse/archives/{KEY}/0000000001.json")
    expired(lake)
    folded = [(2, "folded"), (3, "expire"), (4, "archive")]
    assert records_of(lake) == folded
    contents = archive_contents(lake, facts_of(lake, KEY))
    assert held(lake) == [DAY_3] and len(contents.moved) == 3
    # A killed run may leave a record that is folded.
    lake.store.put(f"_lakehouse/archives/{KEY}/0000000001.json", first)
    assert records_of(lake) == folded and held(lake) == [DAY_3]


def expired_long_ago(lake: Lake) -> None:
    """Both partitions of an archive expired, each by itself, and the log begins after that."""
    old_ms = now_ms() - 99 * DAY_MS
    files = {file.partition[0][1]: file for file in facts_of(lake, KEY).snapshot.files}
    by_hand.archive(lake, KEY, DAY_1, created_ms=old_ms)
    by_hand.archive(lake, KEY, DAY_2, created_ms=old_ms)
    for day in (DAY_1, DAY_2):
        snapshot = facts_of(lake, KEY).snapshot
        operation = by_hand.operation_of(lake, snapshot, [files[day]], "expire", old_ms)
        record_operation(lake.store, KEY, operation)
    expired(lake)
    add_events(lake, event(7, 6, "b", day=3))
    forget_log(lake)


def test_the_cutoff_stays_if_the_newest_folded_operation_is_an_expiry(lake: Lake) -> None:
    """Its number is above the table's transaction id, which the last archived partition set."""
    expired_long_ago(lake)
    expired(lake)
    assert records_of(lake) == [(3, "folded"), (4, "expire")]
    operations = archive_operations(lake.store, KEY)
    assert _cutoff_ms(operations, facts_of(lake, KEY).snapshot) is not None


def test_no_record_is_folded_before_its_commit_was_compared(lake: Lake) -> None:
    """The comparison would find no record, and no archive run could begin any more."""
    expired_long_ago(lake)
    [_, operation, *_] = archive_operations(lake.store, KEY)
    expect_commit(lake.store, KEY, operation, operation.version)
    expired(lake)
    assert len(records_of(lake)) == 4
    with pytest.raises(Broken, match="no longer has the commit of operation 2"):
        verify_delete(lake, KEY)
    assert verify_delete(lake, KEY) is None


@pytest.mark.parametrize("needed", ["stored", "held", "young", "unfinished"])
def test_no_record_is_folded_that_something_needs(lake: Lake, needed: str) -> None:
    """The planted faults: each alone keeps the records."""
    old_ms = now_ms() - (80 if needed == "young" else 99) * DAY_MS
    operation = by_hand.archive(lake, KEY, DAY_1, created_ms=old_ms)
    by_hand.archive(lake, KEY, DAY_2, created_ms=old_ms)
    expired(lake, replace(TABLE, archive=None) if needed == "held" else TABLE)
    if needed == "stored":
        lake.store.put(operation.files[0].archived, b"could not be deleted")
    by_hand.archive(lake, KEY, DAY_3, created_ms=now_ms())
    if needed == "unfinished":
        add_events(lake, event(9, 6, "late", day=2))
        by_hand.copied(lake, KEY, DAY_2)
    version = forget_log(lake)
    facts = module._gather(lake, TABLE)
    assert facts is not None
    found = module.foldable_records(
        facts, older_than_days=31, oldest_version=version, now_ms=now_ms()
    )
    assert list(found) == []


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", ["record_operation", "_delete"])
def test_a_killed_run_is_completed_by_the_next_one(lake: Lake, step: str, when: str) -> None:
    by_hand.archive(lake, KEY, DAY_1, DAY_2)
    by_hand.archive(lake, KEY, DAY_3, created_ms=now_ms())
    with killed_at(module, step, when):
        expire(lake, TABLE)
    assert held(lake) in ([DAY_1, DAY_2, DAY_3], [DAY_3])
    expired(lake)
    assert (stored(lake), held(lake)) == ([f"day={DAY_3}"], [DAY_3])
    assert len(archive_operations(lake.store, KEY)) == 3


def test_a_file_that_the_archive_has_again_stays(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted fault: between the plan and the deletion, records say something else."""
    by_hand.archive(lake, KEY, DAY_1)
    monkeypatch.setattr(module, "record_operation", lambda *_: None)
    outcome = expired(lake)
    assert (outcome.deleted_files, stored(lake), held(lake)) == (0, [f"day={DAY_1}"], [DAY_1])


def test_what_could_not_be_deleted_is_reported_and_tried_again(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_hand.archive(lake, KEY, DAY_1)
    with monkeypatch.context() as patch:
        denied: Callable[[object, list[str]], dict[str, str]] = lambda _, names: dict.fromkeys(  # noqa: E731
            names, "AccessDenied"
        )
        patch.setattr(type(lake.store), "delete_each", denied)
        assert expired(lake).sentence.endswith(": AccessDenied")
    assert (expired(lake).deleted_files, stored(lake)) == (1, [])


def test_a_table_that_a_restore_of_delta_brought_back_loses_nothing(lake: Lake) -> None:
    """Its rows are in two places then, and a person has to choose."""
    by_hand.archive(lake, KEY, DAY_1)
    table = DeltaTable(lake.settings.table_uri(KEY))
    table.optimize.compact()
    table.restore(0)
    with pytest.raises(Broken, match="use RESTORE to version 1"):
        expire(lake, TABLE)
    DeltaTable(lake.settings.table_uri(KEY)).restore(1)
    assert held(lake) == [DAY_1]
