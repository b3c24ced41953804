"""What a killed run left is withdrawn only if the log proves that it was not applied."""

from dataclasses import replace

import pytest

from lakehouse.core.archive.contents import ArchiveContents
from lakehouse.core.archive.records import (
    APP_ID,
    ArchivedFile,
    ArchiveOperation,
    RecordedPartition,
)
from lakehouse.core.errors import Broken
from lakehouse.engine.archive.records import (
    archive_contents,
    archive_operations,
    record_operation,
    withdraw_unapplied,
)
from lakehouse.engine.lake import Lake
from lakehouse_tests.log_builder import LogBuilder

KEY, COPY = "bronze/t", "archive/bronze/t/d=1/a"


def recorded(lake: Lake, table_id: str) -> ArchiveOperation:
    file = ArchivedFile(source="d=1/a", archived=COPY, size_bytes=1, row_count=1)
    partition = RecordedPartition(values=(("d", "1"),), start_ms=0, end_ms=1, files=(file,))
    operation = ArchiveOperation(
        number=1,
        kind="archive",
        table_id=table_id,
        version=1,
        created_ms=0,
        cutoff_ms=1,
        storage_class="STANDARD",
        partitions=(partition,),
    )
    record_operation(lake.store, KEY, operation)
    lake.store.put(COPY, b"x")
    return operation


@pytest.mark.parametrize(
    ("is_gone", "is_carried", "is_withdrawn"),
    [(False, False, True), (True, False, True), (True, True, False)],
)
def test_copies_are_deleted_only_if_no_commit_carries_the_number(
    memory: Lake, is_gone: bool, is_carried: bool, is_withdrawn: bool
) -> None:
    """A log that forgets transaction ids must not make the only copy of rows look unneeded."""
    story = LogBuilder(memory.store, KEY).create(partition_by=["d"]).append([("d=1/a", 1)])
    operation = recorded(memory, story.snapshot().table_id)
    if is_gone:
        remove = {"remove": {"path": "d=1/a", "deletionTimestamp": 1, "dataChange": True}}
        carried = {"txn": {"appId": APP_ID, "version": 1}}
        story.commit("DELETE", remove, *([carried] if is_carried else []))
    facts = memory.facts(KEY)
    assert facts is not None
    forgetful = replace(facts, snapshot=replace(facts.snapshot, transactions={}))
    contents = ArchiveContents(unapplied=operation, last_number=1)
    if is_withdrawn:
        withdraw_unapplied(memory, forgetful, contents)
    else:
        with pytest.raises(Broken, match="does not say whether operation 1 was applied"):
            withdraw_unapplied(memory, forgetful, contents)
    assert (memory.store.stat(COPY) is None) == is_withdrawn
    assert len(archive_operations(memory.store, KEY)) == (not is_withdrawn)


def test_a_record_is_never_overwritten(memory: Lake) -> None:
    operation = recorded(memory, "t")
    with pytest.raises(Broken, match="written by another process"):
        record_operation(memory.store, KEY, operation)
    memory.store.put(f"_lakehouse/archives/{KEY}/0000000002.json", b"{}")
    with pytest.raises(Broken, match=r"0000000002\.json cannot be read"):
        archive_operations(memory.store, KEY)


def test_a_restore_is_found_however_many_commits_followed_it(memory: Lake) -> None:
    """Facts hold the newest commits only."""
    story = LogBuilder(memory.store, KEY).create(partition_by=["d"]).append([("d=1/a", 1)])
    recorded(memory, story.snapshot().table_id)
    remove = {"remove": {"path": "d=1/a", "deletionTimestamp": 1, "dataChange": True}}
    story.commit("DELETE", remove, {"txn": {"appId": APP_ID, "version": 1}})
    for number in range(3):
        story.append([(f"d=2/{number}", 1)])
    assert archive_contents(memory, story.facts(newest_commits=2)).row_count == 1
    story.commit("RESTORE", parameters={"version": "1"})
    for number in range(3, 6):
        story.append([(f"d=2/{number}", 1)])
    with pytest.raises(Broken, match="version 6 is a RESTORE of a version before"):
        archive_contents(memory, story.facts(newest_commits=2))
