"""The archive of a table: each row is read once, whatever is killed, put back or done at the same time."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction

from lakehouse import Archive, Ttl
from lakehouse.base.clock import now_ms
from lakehouse.base.errors import Broken, Refused, Transient
from lakehouse.base.settings import Settings
from lakehouse.base.text import DAY_MS
from lakehouse.compact.verify import expect_verification
from lakehouse.declare.table import Adopted
from lakehouse.delta.snapshot import Column
from lakehouse.lake import commits
from lakehouse.lake.lake import Lake, open_lake
from lakehouse.retain.plan import archive as archive_plan
from lakehouse.retain.plan.archive import ArchiveFacts, partition_text, plan_archive
from lakehouse.retain.run import archive as archive_run
from lakehouse.retain.run.archive import archive_key, plan, run_archive
from lakehouse.retain.run.read import restore_plan
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.kills import DyingStore, Killed, dies_before_and_after_every_write, killed_at
from lakehouse_tests.retain.example_days import (
    DAYS,
    KEY,
    ROWS,
    add_rows,
    all_rows,
    archive_files,
    archive_rows,
    archive_version,
    archived,
    no_spark,
    table_rows,
)
from lakehouse_tests.support.example_snapshots import data_file, snapshot


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return open_lake(own_settings(tmp_path / "home"))


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the clock of archive runs some days ahead."""

    def set_ahead(days: float) -> None:
        ahead = now_ms() + round(days * DAY_MS)
        for module in (archive_run, commits):
            monkeypatch.setattr(module, "now_ms", lambda: ahead)

    return set_ahead


@contextmanager
def just_before(step: str, meanwhile: Callable[[], object]) -> Iterator[None]:
    """Another home, without any lock in common, does something just before a run's first `step`."""
    real = getattr(archive_run, step)
    calls = count()

    def run(*arguments: Any) -> Any:
        if next(calls) == 0:
            meanwhile()
        return real(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archive_run, "hold", lambda *_, **__: nullcontext())
        patch.setattr(archive_run, step, run)
        yield


def test_old_partitions_leave_as_whole_files_and_each_row_is_in_one_place(lake: Lake) -> None:
    add_rows(lake, ROWS)
    outcome = archived(lake)
    size = f"2 rows in 1 file, {outcome.plan.figures['bytes']} B"
    moves = f"1 partition ({size}) moves to the archive: from before 2013-01-02 00:00 UTC"
    assert outcome.plan.sentence == moves
    assert (archive_rows(lake), table_rows(lake)) == (ROWS[:2], ROWS[2:])
    [name] = archive_files(lake)
    assert name.rpartition("/")[0] == f"archive/{KEY}/day=2013-01-01"
    again = archived(lake)
    assert again.version_after is None and archive_version(lake) == 0
    assert again.plan.sentence == ("no partition to archive is from before 2013-01-02 00:00 UTC")


def test_a_run_that_dies_before_or_after_any_write_loses_and_doubles_no_row(tmp_path: Path) -> None:
    numbers = count()

    def begin() -> Lake:
        lake = open_lake(own_settings(tmp_path / str(next(numbers))))
        add_rows(lake, ROWS)
        archived(lake)
        add_rows(lake, [(99, 1), (7, 7)])
        return lake

    expected = sorted([*ROWS, (99, 1), (7, 7)])
    deaths = 0
    for lake in dies_before_and_after_every_write(begin, archived):
        deaths += 1
        assert all_rows(lake) == expected
        archived(lake)
        assert all_rows(lake) == expected
        assert {day for _, day in table_rows(lake)} == {4, 5, 7}
    assert deaths > 8


def test_taking_back_a_dead_run_may_die_as_well(tmp_path: Path) -> None:
    numbers = count()

    def begin() -> Lake:
        lake = open_lake(own_settings(tmp_path / str(next(numbers))))
        add_rows(lake, ROWS)
        with killed_at(archive_run, "_commit_to_table", "before"):
            archived(lake)
        return lake

    for lake in dies_before_and_after_every_write(begin, archived):
        assert all_rows(lake) == ROWS
        archived(lake)
        assert (archive_rows(lake), table_rows(lake)) == (ROWS[:2], ROWS[2:])


def test_a_run_taken_for_dead_cannot_commit_any_more(lake: Lake) -> None:
    """Another home takes it back between its two commits: its files stay in the table."""
    add_rows(lake, ROWS)
    with (
        just_before("_commit_to_table", lambda: archived(lake)),
        pytest.raises(Transient, match="another run has committed meanwhile"),
    ):
        archived(lake)
    assert all_rows(lake) == ROWS
    archived(lake)
    assert (archive_rows(lake), table_rows(lake)) == (ROWS[:2], ROWS[2:])


def test_a_dead_run_whose_commit_came_first_stays_applied(lake: Lake) -> None:
    """The take-back has changed the archive when its own commit to the table fails."""
    add_rows(lake, ROWS)
    late = list[Any]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archive_run, "_commit_to_table", lambda *a: late.append(a) or 1)
        archived(lake)
    real = archive_run.commit_to_archive

    def then_the_dead_one(*arguments: Any) -> int:
        number = real(*arguments)
        archive_run._commit_to_table(*late.pop())
        return number

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archive_run, "commit_to_archive", then_the_dead_one)
        with pytest.raises(Transient):
            archived(lake)
    assert (archive_rows(lake), table_rows(lake)) == (ROWS[:2], ROWS[2:])
    archived(lake)
    assert (archive_rows(lake), table_rows(lake)) == (ROWS[:2], ROWS[2:])


def test_rows_written_while_a_run_commits_stay_in_the_table(lake: Lake) -> None:
    add_rows(lake, ROWS)
    with just_before("_commit_to_table", lambda: add_rows(lake, [(99, 1)])):
        archived(lake)
    assert (99, 1) in table_rows(lake)
    assert all_rows(lake) == sorted([*ROWS, (99, 1)])


def test_a_run_whose_leaving_files_are_compacted_is_taken_back_by_the_next_one(lake: Lake) -> None:
    add_rows(lake, ROWS)
    add_rows(lake, [(12, 1)])
    with (
        just_before("_commit_to_table", DeltaTable(lake.settings.table_uri(KEY)).optimize.compact),
        pytest.raises(Transient, match="another writer has changed files"),
    ):
        archived(lake)
    assert all_rows(lake) == table_rows(lake) == sorted([*ROWS, (12, 1)])
    archived(lake)
    assert archive_version(lake) == 2  # 0 was taken back by 1
    assert archive_rows(lake) == [*ROWS[:2], (12, 1)]
    assert all_rows(lake) == sorted([*ROWS, (12, 1)])


def test_a_feature_that_our_commit_would_break_is_refused_whenever_it_comes(lake: Lake) -> None:
    """No other program could write the table after a commit without the time that the feature wants."""
    features = ["appendOnly", "invariants", "inCommitTimestamp"]
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}

    def enable() -> None:
        data = commits.encoded([{"protocol": protocol}])
        assert lake.store.put_if_absent(f"{KEY}/_delta_log/{1:020}.json", data)

    add_rows(lake, ROWS)
    for _ in range(2):  # during a run, and before the run that takes it back
        with (
            just_before("_commit_to_table", enable),
            pytest.raises(Refused, match="inCommitTimestamp is not supported"),
        ):
            archived(lake)
        assert DeltaTable(lake.settings.table_uri(KEY)).version() == 1
    assert all_rows(lake) == ROWS


HISTORIES = range(4, int(os.environ.get("HISTORIES", "12")))


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(each, marks=pytest.mark.long) for each in HISTORIES)]
)
def test_random_histories_lose_and_double_no_row(lake: Lake, seed: int) -> None:
    """Appends, late rows, compactions, deletions and runs that die; `HISTORIES=300` plays more."""
    random = Random(seed)
    written = list[tuple[int, int]]()
    newest = 3
    operations = ("new", "new", "late", "compact", "delete", "archive", "archive", "die")
    for step in range(14):
        match random.choice(operations):
            case "new" | "late" as what:
                newest += what == "new"
                day = newest if what == "new" else random.randint(1, newest)
                rows = [(100 * step + place, day) for place in range(random.randint(1, 3))]
                add_rows(lake, rows)
                written += rows
            case "compact" if written:
                DeltaTable(lake.settings.table_uri(KEY)).optimize.compact()
            case "delete" if table_rows_or_none(lake):
                id_ = random.choice(table_rows(lake))[0]
                DeltaTable(lake.settings.table_uri(KEY)).delete(f"id = {id_}")
                written = [row for row in written if row[0] != id_]
            case "archive" if written:
                archived(lake)
            case "die" if written:
                at, when = random.randint(2, 9), random.choice(["before", "after"])
                store = DyingStore(lake.store, at, when)
                with suppress(Killed):
                    archived(replace(lake, store=store))
            case _:
                pass
        assert not written or all_rows(lake) == sorted(written)
    if written:
        archived(lake)
        assert all_rows(lake) == sorted(written)


def table_rows_or_none(lake: Lake) -> list[tuple[int, int]]:
    return [] if lake.facts(KEY) is None else table_rows(lake)


def copy_of_log(lake: Lake, to: Path) -> Path:
    return Path(shutil.copytree(Path(lake.settings.table_uri(KEY)) / "_delta_log", to))


def put_log_back(lake: Lake, log: Path) -> None:
    place = Path(lake.settings.table_uri(KEY)) / "_delta_log"
    shutil.rmtree(place)
    shutil.copytree(log, place)


def test_an_older_log_of_a_vacuumed_table_is_broken_and_nothing_is_repaired(
    lake: Lake, tmp_path: Path
) -> None:
    """The archive has the only copy of its rows, although the log put back names their files."""
    add_rows(lake, ROWS)
    log = copy_of_log(lake, tmp_path / "log")
    archived(lake)
    shutil.rmtree(Path(lake.settings.table_uri(KEY)) / "day=2013-01-01")
    put_log_back(lake, log)
    before = {file.name for file in lake.store.list("archive")}
    with pytest.raises(Broken, match="the archived rows may be the only ones"):
        archived(lake)
    assert {file.name for file in lake.store.list("archive")} == before


def test_an_older_log_that_went_on_is_broken(lake: Lake, tmp_path: Path) -> None:
    add_rows(lake, ROWS)
    archived(lake)
    log = copy_of_log(lake, tmp_path / "log")
    for day in (8, 12):
        add_rows(lake, [(day, day)])
        archived(lake)
    put_log_back(lake, log)
    add_rows(lake, [(5, 5)])
    with pytest.raises(Broken, match=r"planned from another version|An older log was put in place"):
        archived(lake)


def test_an_older_copy_after_two_runs_is_broken(lake: Lake, tmp_path: Path) -> None:
    add_rows(lake, ROWS)
    log = copy_of_log(lake, tmp_path / "log")
    archived(lake)
    add_rows(lake, [(8, 8)])
    archived(lake)
    put_log_back(lake, log)
    for _ in range(4):  # until its versions are above those that were lost
        add_rows(lake, [(5, 5)])
    with pytest.raises(Broken, match="An older log was put in place"):
        archived(lake)


def clean_up_log(lake: Lake) -> None:
    """What Delta does after `delta.logRetentionDuration`: the log begins with a checkpoint."""
    DeltaTable(lake.settings.table_uri(KEY)).create_checkpoint()
    facts = lake.facts(KEY)
    assert facts is not None
    versions = range(facts.snapshot.version)
    lake.store.delete([f"{KEY}/_delta_log/{version:020}.json" for version in versions])


def test_a_dead_run_is_taken_back_although_the_log_was_cleaned_up(lake: Lake) -> None:
    add_rows(lake, ROWS)
    with killed_at(archive_run, "_commit_to_table", "before"):
        archived(lake)
    add_rows(lake, [(99, 5)])
    clean_up_log(lake)
    archived(lake)
    assert archive_version(lake) == 2
    assert (archive_rows(lake), all_rows(lake)) == (ROWS[:2], sorted([*ROWS, (99, 5)]))


def test_late_rows_join_the_archive_although_the_log_was_cleaned_up(lake: Lake) -> None:
    add_rows(lake, ROWS)
    archived(lake)
    add_rows(lake, [(98, 5)])
    add_rows(lake, [(99, 5)])
    clean_up_log(lake)
    add_rows(lake, [(12, 1)])
    archived(lake)
    assert archive_rows(lake) == [*ROWS[:2], (12, 1)]
    add_rows(lake, [(13, 1)])
    DeltaTable(lake.settings.table_uri(KEY)).optimize.compact()
    clean_up_log(lake)
    [note] = archived(lake).plan.notes
    assert note.startswith("rows that a write that the log no longer has wrote")
    assert all_rows(lake) == sorted([*ROWS, (12, 1), (13, 1), (98, 5), (99, 5)])


def restored(lake: Lake, day: int) -> int:
    """A restore of one day, without Spark; returns the table's version."""
    state = archive_run.read_state(lake, KEY)
    rows = [row for row in archive_rows(lake) if row[1] == day]
    [partition] = restore_plan(lake, DAYS, [{"day": f"2013-01-0{day}"}], state).partitions
    number = archive_run.commit_to_archive(lake, state, restored=[partition])
    transaction = Transaction(archive_run.ARCHIVE_APP_ID, number)
    add_rows(lake, rows, commit_properties=CommitProperties(app_transactions=[transaction]))
    return DeltaTable(lake.settings.table_uri(KEY)).version()


@pytest.mark.parametrize("is_cleaned_up", [False, True])
def test_each_of_several_restores_is_missed_if_a_foreign_restore_undoes_it(
    lake: Lake, is_cleaned_up: bool
) -> None:
    add_rows(lake, [*ROWS, (8, 8)])
    archived(lake)
    first = restored(lake, 1)
    if is_cleaned_up:
        add_rows(lake, [(99, 8)])
        clean_up_log(lake)
        first = DeltaTable(lake.settings.table_uri(KEY)).version()
    second = restored(lake, 2)
    rows = all_rows(lake)
    table = DeltaTable(lake.settings.table_uri(KEY))
    table.restore(first)
    with pytest.raises(Broken, match=f"in neither. RESTORE the table to version {second}, or"):
        plan(lake, DAYS)
    table.restore(second)
    assert plan(lake, DAYS).notes and all_rows(lake) == rows


def test_upkeep_of_the_archive_by_other_programs_blocks_nothing(lake: Lake) -> None:
    """A vacuum commits no files, and a compaction is taken back. Deleted rows are Broken."""
    add_rows(lake, ROWS)
    archived(lake)
    add_rows(lake, [(12, 1), (8, 8)])
    archive = DeltaTable(lake.settings.table_uri(archive_key(KEY)))
    info = commits.commit_info("VACUUM START", 0, {})
    lake.store.put(f"{archive_key(KEY)}/_delta_log/{1:020}.json", commits.encoded([info]))
    archived(lake)
    assert (archive_version(lake), all_rows(lake)) == (2, sorted([*ROWS, (12, 1), (8, 8)]))
    archive.update_incremental()
    archive.optimize.compact()
    assert archive.version() == 3
    assert archived(lake).version_after is None
    assert (archive_version(lake), all_rows(lake)) == (4, sorted([*ROWS, (12, 1), (8, 8)]))
    add_rows(lake, [(13, 1)])
    archived(lake)
    assert all_rows(lake) == sorted([*ROWS, (12, 1), (13, 1), (8, 8)])
    archive.update_incremental()
    archive.delete("id = 12")
    with pytest.raises(Broken, match="version 6 was written by another program"):
        archived(lake)


def test_a_file_with_the_longest_possible_name_is_archived(lake: Lake) -> None:
    add_rows(lake, ROWS)
    [file] = lake.store.list(f"{KEY}/day=2013-01-01")
    long_name = f"{KEY}/day=2013-01-01/{'x' * 247}.parquet"
    root = Path(lake.settings.root)
    (root / file.name).rename(root / long_name)
    log = f"{KEY}/_delta_log/{0:020}.json"
    data = lake.store.read(log).replace(
        file.name.removeprefix(f"{KEY}/").encode(), long_name.removeprefix(f"{KEY}/").encode()
    )
    lake.store.delete([log])
    lake.store.put(log, data)
    archived(lake)
    assert (archive_rows(lake), table_rows(lake)) == (ROWS[:2], ROWS[2:])


def test_a_compaction_that_was_not_verified_is_verified_first(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the archive has committed, no RESTORE could undo it without loss."""
    add_rows(lake, ROWS)
    expect_verification(lake, KEY, "a mark", version=0)
    verified = list[str]()
    monkeypatch.setattr(archive_run, "verify_left", lambda *a: verified.append(a[2]))
    run_archive(lake, DAYS, lambda: None)  # pyright: ignore[reportArgumentType]
    assert verified == [KEY]


def test_a_table_whose_log_forgets_the_archive_is_refused(lake: Lake) -> None:
    add_rows(lake, ROWS, configuration={"delta.setTransactionRetentionDuration": "interval 1 days"})
    with pytest.raises(Refused, match="Unset the property"):
        archived(lake)


def test_an_archive_that_is_gone_or_older_is_broken(lake: Lake, tmp_path: Path) -> None:
    add_rows(lake, ROWS)
    archived(lake)
    place = Path(lake.settings.table_uri(archive_key(KEY)))
    shutil.copytree(place, tmp_path / "older")
    add_rows(lake, [(8, 8)])
    archived(lake)
    shutil.rmtree(place)
    with pytest.raises(Broken, match="there is no archive"):
        plan(lake, DAYS)
    shutil.copytree(tmp_path / "older", place)
    with pytest.raises(Broken, match="an older copy of it was put in its place"):
        plan(lake, DAYS)


def test_late_rows_join_the_archive_and_rows_computed_again_do_not(lake: Lake) -> None:
    add_rows(lake, ROWS)
    archived(lake)
    add_rows(lake, [(99, 1)])
    archived(lake)
    assert archive_rows(lake) == [*ROWS[:2], (99, 1)]
    add_rows(lake, [(10, 1), (11, 1)], mode="overwrite", predicate="day = '2013-01-01'")
    outcome = archived(lake)
    assert outcome.version_after is None
    [note] = outcome.plan.notes
    assert note.startswith("rows that a WRITE wrote to archived partitions stay in the table")
    with pytest.raises(Refused, match="a WRITE wrote rows of day=2013-01-01 since it was archived"):
        restore_plan(lake, DAYS)
    with killed_at(archive_run, "_commit_to_table", "before"):
        archived(lake, replace=[{"day": "2013-01-01"}])
    assert archived(lake).plan.notes == (note,)  # taking it back makes them no late rows
    replaced = archived(lake, replace=[{"day": "2013-01-01"}])
    assert replaced.version_after is not None
    assert archive_rows(lake) == ROWS[:2]
    assert all_rows(lake) == ROWS


def test_late_rows_that_were_compacted_join_the_archive(lake: Lake) -> None:
    add_rows(lake, ROWS)
    archived(lake)
    add_rows(lake, [(98, 1)])
    add_rows(lake, [(99, 1)])
    DeltaTable(lake.settings.table_uri(KEY)).optimize.compact()
    archived(lake)
    assert archive_rows(lake) == [*ROWS[:2], (98, 1), (99, 1)]


def test_archived_partitions_expire_and_their_bytes_go_after_the_retention(
    lake: Lake, later: Callable[[float], None]
) -> None:
    add_rows(lake, ROWS)
    archived(lake)
    later(184)
    outcome = archived(lake)
    assert [each.text for each in outcome.plan.expiring] == ["day=2013-01-01"]
    assert (archive_rows(lake), table_rows(lake)) == ([], ROWS[2:])
    assert len(archive_files(lake)) == 1
    later(193)
    archived(lake)
    assert archive_files(lake) == []


def test_unnamed_copies_go_after_the_retention(lake: Lake, later: Callable[[float], None]) -> None:
    add_rows(lake, ROWS)
    with killed_at(archive_run, "commit_to_archive", "before"):
        archived(lake)
    archived(lake)
    assert len(archive_files(lake)) == 2
    later(8)
    archived(lake)
    assert len(archive_files(lake)) == 1
    assert archive_rows(lake) == ROWS[:2]


def test_a_copy_with_other_content_in_as_many_bytes_is_found(lake: Lake) -> None:
    add_rows(lake, ROWS)
    real = type(lake.store).copy

    def flipped(store: Any, source: Any, name: str, **options: Any) -> None:
        real(store, source, name, **options)
        data = bytearray(store.read(name))
        data[40] ^= 1
        store.put(name, bytes(data))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(lake.store), "copy", flipped)
        with pytest.raises(Broken, match="differs from"):
            archived(lake)
    assert table_rows(lake) == ROWS


def test_a_dead_feed_does_not_empty_its_table(lake: Lake) -> None:
    add_rows(lake, ROWS)
    archived(lake)
    assert archived(lake).version_after is None
    assert table_rows(lake) == ROWS[2:]
    by_now = replace(DAYS, archive=Archive(older_than_days=3))
    assert archived(lake, by_now).version_after is not None
    assert table_rows(lake) == ROWS[-2:]


def test_both_logs_get_their_checkpoints(lake: Lake) -> None:
    for day in range(1, 17):
        add_rows(lake, [(day, day)])
        archived(lake)
    for key in (KEY, archive_key(KEY)):
        facts = lake.facts(key)
        assert facts is not None and facts.snapshot.log.checkpoint_version is not None
    assert all_rows(lake) == [(day, day) for day in range(1, 17)]


@pytest.mark.parametrize(
    ("columns", "partitions", "leaving"),
    [
        ({"starts": "date"}, [("2026-08-31",), ("2026-09-07",), ("2026-09-14",)], 1),
        ({"at": "timestamp"}, [("2026-09-10 22:00:00",), ("2026-09-10 23:00:00",)], 1),
        ({"month": "string"}, [("2026-07",), ("2026-08",), ("2026-09",), ("other",)], 2),
        ({"day": "date", "hour": "int"}, [("2026-09-10", "22"), ("2026-09-10", "23")], 1),
        ({"year": "int", "month": "string"}, [("2025", "12"), ("2026", "09"), (None, "1")], 1),
        ({"year": "bigint"}, [("1969",), ("1970",), ("2026",), ("9" * 18,)], 2),
        (
            {"day": "date", "hour": "bigint"},
            [("2026-09-01", "1"), ("2026-09-02", "1"), ("2026-09-03", "9" * 18)],
            1,
        ),
        ({"region": "string", "day": "date"}, [("a", "2026-09-09"), ("b", "2026-09-10")], 1),
        # Neither a purge nor a restore would keep the empty text.
        (
            {"region": "string", "day": "date"},
            [("a", "2026-09-01"), ("", "2026-09-01"), ("a", "2026-09-10")],
            1,
        ),
        ({"day": "date"}, [("2026-09-11",), ("2026-09-12",)], 0),
        ({"day": "date"}, [(None,)], 0),
        ({"region": "string"}, [("a",), ("b",)], 0),
    ],
)
def test_a_partition_leaves_some_days_after_the_next_one_started(
    columns: dict[str, str], partitions: list[tuple[str | None, ...]], leaving: int
) -> None:
    files = [
        data_file(1, f"f{number}", partition=tuple(zip(columns, texts, strict=True)))
        for number, texts in enumerate(partitions)
    ]
    declared = [Column(name=name, type=type_) for name, type_ in columns.items()]
    layout = snapshot(files, columns=declared, partition_columns=[*columns])
    now = datetime(2026, 10, 1, 12, tzinfo=UTC)
    now_ms = round(now.timestamp() * 1_000)
    archive = Archive(older_than_days=20)
    made = plan_archive(DAYS, archive, ArchiveFacts(snapshot=layout), now_ms=now_ms)
    names = [partition_text(file.partition) for file in files]
    assert [each.text for each in made.leaving] == names[:leaving]


def test_a_run_moves_the_oldest_files_first(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_plan, "MOST_FILES", 1)
    add_rows(lake, [*ROWS, (7, 7)])
    outcome = archived(lake)
    assert outcome.plan.notes == (
        "later runs move more, because one run moves 1 files: day=2013-01-02, day=2013-01-03",
    )
    assert (archive_rows(lake), archived(lake).plan.figures["files"]) == (ROWS[:2], 1)


def test_a_table_whose_partitions_have_two_times_is_refused() -> None:
    partition = (("day", "2026-01-01"), ("loaded", "2026-01-02"))
    columns = [Column(name=name, type="string") for name in ("day", "loaded")]
    files = [data_file(1, "f", partition=partition)]
    layout = snapshot(files, columns=columns, partition_columns=["day", "loaded"])
    with pytest.raises(Refused, match="several of the partition columns day, loaded"):
        plan_archive(DAYS, Archive(), ArchiveFacts(snapshot=layout), now_ms=0)


def test_an_archive_and_a_ttl_of_one_table_contradict_each_other() -> None:
    with pytest.raises(Refused, match="archive and ttl are both set"):
        replace(DAYS, ttl=Ttl(column="day", days=400))


def test_a_rerun_by_another_home_is_stopped_by_a_condition(lake: Lake, settings: Settings) -> None:
    """Two homes without any lock in common: one moves the partition, the other one finds nothing."""
    add_rows(lake, ROWS)
    other = open_lake(replace(settings, root=lake.settings.root))
    with (
        just_before("commit_to_archive", lambda: run_archive(other, DAYS, no_spark)),
        pytest.raises(Transient, match="created version"),
    ):
        archived(lake)
    assert (archive_rows(lake), table_rows(lake)) == (ROWS[:2], ROWS[2:])


def test_a_table_outside_the_lake_is_archived_in_the_lake(lake: Lake, settings: Settings) -> None:
    add_rows(lake, ROWS)
    adopted = replace(DAYS, source=None, write=Adopted(uri=lake.settings.table_uri(KEY)))
    other = open_lake(settings, tables=[adopted])
    archived(other, adopted)
    assert table_rows(lake) == ROWS[2:] and not lake.store.list("archive")
    rows = DeltaTable(other.settings.table_uri(archive_key(KEY))).to_pyarrow_table()
    assert sorted(rows["id"].to_pylist()) == [10, 11]
