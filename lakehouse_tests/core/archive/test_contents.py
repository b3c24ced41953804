"""What an archive holds, as of any version of its table, follows from records and one number."""

from dataclasses import replace
from random import Random

import pytest

from lakehouse.core.archive.contents import fold_archive, refuse_undone
from lakehouse.core.archive.expire import fold_records
from lakehouse.core.archive.records import (
    APP_ID,
    ArchivedFile,
    ArchiveKind,
    ArchiveOperation,
    RecordedPartition,
    decode_operation,
    encode_operation,
)
from lakehouse.core.delta.commits import Commit, Commits
from lakehouse.core.delta.snapshot import DataFile, LogTail, Snapshot
from lakehouse.core.errors import Broken

DAY_MS = 86_400_000


def snapshot(applied: int = 0, *paths: str, table_id: str = "t") -> Snapshot:
    return Snapshot(
        table="bronze/orders",
        uri="/lake/bronze/orders",
        version=7,
        committed_ms=0,
        files=tuple(DataFile(path=path, size_bytes=1, modified_ms=0) for path in paths),
        log=LogTail(checkpoint_version=None, commit_count=0, commit_bytes=0),
        transactions={APP_ID: applied} if applied else {},
        table_id=table_id,
    )


def partition(day: int, *names: str, rows: int = 10) -> RecordedPartition:
    files = tuple(
        ArchivedFile(
            source=f"day={day}/{name}",
            archived=f"archive/bronze/orders/day={day}/{name}",
            size_bytes=100,
            row_count=rows,
            checksum=f"sha256:{name}",
        )
        for name in names
    )
    return RecordedPartition(
        values=(("day", str(day)),),
        start_ms=day * DAY_MS,
        end_ms=(day + 1) * DAY_MS,
        files=files,
    )


def operation(number: int, kind: ArchiveKind, *partitions: RecordedPartition) -> ArchiveOperation:
    return ArchiveOperation(
        number=number,
        kind=kind,
        table_id="t",
        version=number + 1,
        created_ms=number * 1_000,
        cutoff_ms=5 * DAY_MS,
        storage_class="STANDARD",
        partitions=partitions,
    )


def test_a_record_is_the_same_after_its_json() -> None:
    rewritten = replace(partition(2, "b"), rewritten=("day=2/old ü", "day=2/older"))
    record = operation(3, "archive", partition(1, "a%20b", "ü\udcff"), rewritten)
    record = replace(record, names={"col-1": "ü"})
    assert decode_operation(encode_operation(record)) == record
    assert rewritten.sources == ("day=2/old ü", "day=2/older")


def test_an_operation_counts_from_the_version_whose_commit_carries_its_number() -> None:
    records = [
        operation(1, "archive", partition(1, "a"), partition(2, "b", "c")),
        operation(2, "archive", partition(1, "late")),
        operation(3, "restore", partition(2, "b", "c")),
        operation(4, "archive", partition(3, "d")),
    ]
    rows = [fold_archive(records, snapshot(applied)).row_count for applied in range(5)]
    assert rows == [0, 30, 40, 20, 30]
    contents = fold_archive(records, snapshot(3))
    assert contents.unapplied == records[3]
    assert [each.number for each in contents.partitions] == [1, 2]
    assert contents.restored_ms == {(("day", "2"),): 3_000}
    assert contents.last_number == 4
    assert len(contents.file_names) == 5


def test_an_expiry_counts_as_soon_as_it_is_recorded() -> None:
    records = [
        operation(1, "archive", partition(1, "a"), partition(2, "b")),
        operation(2, "expire", partition(1, "a")),
    ]
    contents = fold_archive(records, snapshot(1))
    assert [each.partition for each in contents.partitions] == [(("day", "2"),)]
    assert contents.unapplied is None


def test_a_table_that_was_created_again_has_an_empty_archive() -> None:
    records = [operation(1, "archive", partition(1, "a"))]
    contents = fold_archive(records, snapshot(table_id="another"))
    assert contents.partitions == ()
    assert contents.unapplied is None
    assert contents.last_number == 1
    assert contents.file_names == {"archive/bronze/orders/day=1/a"}


def test_the_archive_of_a_table_is_unknown_if_a_record_is_missing() -> None:
    records = [operation(1, "archive", partition(1, "a")), operation(3, "archive")]
    with pytest.raises(Broken, match=r"orders/ lacks 1 record \(0000000002\.json\)"):
        fold_archive(records, snapshot(3))
    with pytest.raises(Broken, match=r"2 records \(0000000002\.json, 0000000003\.json\)"):
        fold_archive(records[:1], snapshot(3))


def test_a_restored_older_version_of_the_table_is_found() -> None:
    records = [operation(1, "archive", partition(1, "a"))]
    with pytest.raises(Broken, match="rows may be in two places"):
        fold_archive(records, snapshot(1, "day=1/a"))
    # Before the operation is applied, its files are the table's own.
    assert fold_archive(records, snapshot(0, "day=1/a")).partitions == ()


def test_a_folded_record_stands_for_those_before_it() -> None:
    """Partitions that were moved stay known, so rows that arrive for them are late."""
    records = [
        operation(1, "archive", partition(1, "a"), partition(2, "b")),
        operation(2, "restore", partition(2, "b")),
        operation(3, "expire", partition(1, "a")),
        operation(4, "archive", partition(3, "c")),
    ]
    folded = fold_records(records[:3], "t")
    assert decode_operation(encode_operation(folded)) == folded
    assert (folded.number, folded.cutoff_ms, folded.files) == (3, 5 * DAY_MS, ())
    before = fold_archive(records, snapshot(4))
    after = fold_archive([folded, records[3]], snapshot(4))
    assert (after.partitions, after.moved) == (before.partitions, before.moved)
    assert (after.last_number, after.unapplied) == (4, None)
    assert fold_records([folded, *records[3:]], "t").partitions == (
        replace(partition(1), files=()),
        replace(partition(3), files=()),
    )
    with pytest.raises(Broken, match=r"lacks 1 record \(0000000004\.json\)"):
        fold_archive([folded], snapshot(4))
    assert fold_archive([folded], snapshot(table_id="another")).moved == frozenset()


def test_each_row_is_in_one_place_after_any_history() -> None:
    """Every version of a random history has exactly the files in the archive that moved there."""
    for seed in range(200):
        random = Random(seed)
        records = list[ArchiveOperation]()
        table, archived = set[str](), set[str]()
        states = [frozenset[str]()]
        for number in range(1, random.randrange(2, 9)):
            for name in range(random.randrange(3)):
                table.add(f"f{number}-{name}")
            if archived and random.random() < 0.4:
                moved = set(random.sample(sorted(archived), random.randint(1, len(archived))))
                records.append(operation(number, "restore", partition(1, *sorted(moved))))
                archived -= moved
                table |= {f"again-{number}-{name}" for name in moved}
            else:
                moved = set(random.sample(sorted(table), random.randint(0, len(table))))
                records.append(operation(number, "archive", partition(1, *sorted(moved))))
                archived |= moved
                table -= moved
            states.append(frozenset(archived))
        for applied, expected in enumerate(states):
            contents = fold_archive(records, snapshot(applied))
            found = [file.source for each in contents.partitions for file in each.files]
            assert sorted(found) == sorted(f"day=1/{name}" for name in expected)


def history(*steps: int | str) -> Commits:
    """Commits: a number applies an operation, `n` writes rows, `r2` restores version 2, and `s1` settles operation 1."""
    commits = list[Commit]()
    for version, step in enumerate(steps):
        is_restore = isinstance(step, str) and step.startswith("r")
        commits.append(
            Commit(
                version=version,
                committed_ms=version,
                operation="RESTORE" if is_restore else "WRITE",
                changed_data=True,
                parameters={"version": str(step)[1:]} if is_restore else {},
                applications={APP_ID: step} if isinstance(step, int) else {},
                user_metadata=f'{{"rows_moved":"archive","number":{str(step)[1:]}}}'
                if str(step).startswith("s")
                else None,
            )
        )
    return Commits(table="bronze/orders", commits=tuple(commits))


def test_a_restore_to_a_version_before_an_operation_is_broken_until_another_undoes_it() -> None:
    for steps in (["n", 1, "n", "r2", 2], ["n", 1, "r0", "r1"], ["n", "n", "r0", 1], ["n", 1]):
        refuse_undone(history(*steps))
    for steps in (["n", 1, "r0"], ["n", 1, "r0", "n", 2], ["n", 1, "n", "r2", 2, "r3"], [1, "r?"]):
        with pytest.raises(Broken, match="before operation"):
            refuse_undone(history(*steps))


def test_a_person_settles_a_restore_without_another_that_would_lose_later_rows() -> None:
    refuse_undone(history("n", 1, "r0", "n", "s1", "n"))
    for steps in (["n", 1, "r0", "n", "s2"], ["n", 1, "s1", "r0", "n"], ["n", 1, 2, "r0", "s1"]):
        found = "_lakehouse/archives/bronze/orders/000000000[12].json: .* in one commit with"
        with pytest.raises(Broken, match=found):
            refuse_undone(history(*steps))
