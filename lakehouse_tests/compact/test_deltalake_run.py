"""Compactions by deltalake: as planned, without Spark, and safe next to other writers."""

import shutil
import threading
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest
from deltalake import DeltaTable, PostCommitHookProperties, write_deltalake

from lakehouse.base.errors import Broken, Transient
from lakehouse.compact import deltalake_run, run, verify
from lakehouse.compact.assess import account_of, recent_compactions
from lakehouse.compact.plan.history import CompactionOutcome
from lakehouse.compact.run import compact
from lakehouse.compact.verify import expected
from lakehouse.delta.commits import brought_back_by
from lakehouse.lake.lake import Lake, open_lake
from lakehouse.store import DiskStore, S3Store
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.deltalake_tables import (
    KEY,
    QUIET,
    actions_of,
    adopted,
    before_each,
    compare,
    contents,
    lake_with,
    no_spark,
    rows,
)
from lakehouse_tests.kills import killed_at
from lakehouse_tests.support.example_lake import events


def orders(tmp_path: Path, uri: str = "", **options: Any) -> tuple[str, Lake]:
    """A table with a small file of each of four commits (and partitions), and a lake that maintains it."""
    uri = uri or str(tmp_path / "orders")
    for place in range(4):
        write_deltalake(uri, rows(Random(place), 10, place * 10), mode="append", **options)
    return uri, lake_with(adopted(uri), tmp_path / "home")


@pytest.mark.parametrize(
    "number", [*range(8), *(pytest.param(each, marks=pytest.mark.long) for each in range(8, 220))]
)
def test_deltalake_commits_what_plans_of_random_tables_say(tmp_path: Path, number: int) -> None:
    assert compare(tmp_path, 1, number) == ()


def test_a_compaction_is_recorded_and_priced_like_one_by_spark(tmp_path: Path) -> None:
    uri, lake = orders(tmp_path)
    outcome = compact(lake, no_spark, adopted(uri))
    assert outcome.facts is not None
    [logged] = outcome.facts.history.compactions()
    assert logged.predicted is not None
    assert (logged.engine, logged.files_removed, logged.files_added) == ("deltalake", 4, 1)
    assert (logged.predicted.files_removed, logged.predicted.verify) == (4, "rows")
    account = account_of(lake, adopted(uri), outcome.facts)
    assert account.entries[0].compaction.version == outcome.version_after == 4
    assert (outcome.rows_verified, expected(lake, KEY)) == (40, None)
    [info] = [each["commitInfo"] for each in actions_of(uri, 4) if "commitInfo" in each]
    assert info["engineInfo"].startswith("delta-rs")


def test_a_workshop_of_a_killed_run_is_emptied_but_no_file_behind_its_links(tmp_path: Path) -> None:
    uri, lake = orders(tmp_path)
    workshop = lake.settings.home / "workshops" / KEY.replace("/", ".")
    (workshop / "_delta_log").mkdir(parents=True)
    (workshop / "table").symlink_to(uri)
    before = {path.name for path in Path(uri).glob("*.parquet")}
    assert compact(lake, no_spark, adopted(uri)).entry.compaction.files_removed == len(before) == 4
    assert before < {path.name for path in Path(uri).glob("*.parquet")}
    assert not workshop.exists()


def test_a_run_whose_lease_has_expired_shares_its_workshop_with_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else both would deliver the same file, and the loser of the race would delete it."""
    uri, lake = orders(tmp_path)
    real = deltalake_run._rewrite

    def beside_another(*arguments: Any) -> Any:
        monkeypatch.setattr(deltalake_run, "_rewrite", real)
        with pytest.raises(Transient, match="another process of this home"):
            compact(lake, no_spark, adopted(uri))
        return real(*arguments)

    monkeypatch.setattr(run, "hold", lambda *_, **__: nullcontext())
    monkeypatch.setattr(deltalake_run, "_rewrite", beside_another)
    assert compact(lake, no_spark, adopted(uri)).entry.compaction.files_removed == 4
    assert len(contents(uri)) == 40


# The table's interval -> the version of its checkpoint after the compaction, and the commits since.
CHECKPOINTS = {"5": (4, 0), "6": (None, 5)}


@pytest.mark.parametrize(("interval", "expected_log"), CHECKPOINTS.items())
def test_a_checkpoint_is_written_once_the_table_s_interval_has_passed(
    tmp_path: Path, interval: str, expected_log: tuple[int | None, int]
) -> None:
    """The writer of this table writes none."""
    uri, lake = orders(
        tmp_path,
        configuration={"delta.checkpointInterval": interval},
        post_commithook_properties=PostCommitHookProperties(create_checkpoint=False),
    )
    outcome = compact(lake, no_spark, adopted(uri))
    assert outcome.facts is not None
    log = outcome.facts.snapshot.log
    assert (log.checkpoint_version, log.commit_count) == expected_log
    written = [path.name for path in Path(uri, "_delta_log").glob("*.checkpoint.parquet")]
    assert written == [f"{4:020}.checkpoint.parquet"] * (expected_log[1] == 0)
    for commit in Path(uri, "_delta_log").glob("*.json") if written else ():
        commit.unlink()
    assert len(contents(uri)) == 40
    read_again = lake_with(adopted(uri), tmp_path / "home").facts(KEY)
    assert read_again is not None
    snapshot = read_again.snapshot
    assert (snapshot.version, snapshot.file_count, len(snapshot.tombstones)) == (4, 1, 4)


def panic(uri: str) -> None:
    """A panic in deltalake 1.6.6. It is no `Exception`."""
    DeltaTable(uri).vacuum(retention_hours=2**62)


def test_a_panic_in_deltalake_fails_no_compaction_that_has_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, lake = orders(tmp_path, configuration={"delta.checkpointInterval": "5"})

    monkeypatch.setattr(DeltaTable, "create_checkpoint", lambda _: panic(uri))
    outcome = compact(lake, no_spark, adopted(uri))
    assert (outcome.version_after, outcome.rows_verified, expected(lake, KEY)) == (4, 40, None)


def test_a_panic_before_the_commit_is_a_failure_that_the_circuit_breaker_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, lake = orders(tmp_path)

    monkeypatch.setattr(deltalake_run, "_rewrite", lambda *_: panic(uri))
    with pytest.raises(Broken, match="TimeDelta::hours out of bounds"):
        compact(lake, no_spark, adopted(uri))
    [failed] = recent_compactions(lake, KEY)
    assert failed.result == "failed" and "out of bounds" in failed.why
    assert lake.facts(KEY).snapshot.version == 3  # type: ignore[union-attr]


def test_a_partition_in_which_another_writer_wins_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, lake = orders(tmp_path, partition_by=["number"])

    def delete() -> None:
        DeltaTable(uri).delete("number = 1 AND id < 25")

    real = deltalake_run.compact_by_deltalake
    monkeypatch.setattr(deltalake_run, "compact_by_deltalake", before_each([delete], real))
    outcome = compact(lake, no_spark, adopted(uri))
    left = {file.partition for file in outcome.facts.snapshot.files} if outcome.facts else set()
    assert (outcome.conflicts, outcome.version_after, len(left)) == (1, 5, 3)
    removed = [each["remove"] for each in actions_of(uri, 5) if "remove" in each]
    assert {each["partitionValues"]["number"] for each in removed} == {None, "2"}
    assert not compact(lake, no_spark, adopted(uri)).plan.bins or outcome.plan.files_left


def test_a_race_that_is_lost_three_times_ends_the_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, lake = orders(tmp_path)

    def rewrite() -> None:
        DeltaTable(uri).optimize.compact()
        write_deltalake(uri, rows(Random(9), 10, 900), mode="append")
        write_deltalake(uri, rows(Random(9), 10, 910), mode="append")

    real = deltalake_run.compact_by_deltalake
    monkeypatch.setattr(deltalake_run, "compact_by_deltalake", before_each([rewrite] * 3, real))
    with pytest.raises(Transient, match="another writer changed the table first"):
        compact(lake, no_spark, adopted(uri))
    assert len(contents(uri)) == 100


def test_a_compaction_by_others_at_the_same_time_doubles_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """deltalake 1.6.6 itself commits over it, and each row is there twice."""
    uri, lake = orders(tmp_path)
    files = [path.name for path in Path(uri).iterdir()]

    def optimize() -> None:
        DeltaTable(uri).optimize.compact()

    real = deltalake_run.compact_by_deltalake
    monkeypatch.setattr(deltalake_run, "compact_by_deltalake", before_each([optimize], real))
    outcome = compact(lake, no_spark, adopted(uri))
    assert (outcome.version_after, outcome.conflicts) == (None, 1)
    assert len(contents(uri)) == 40
    assert len([*Path(uri).iterdir()]) == len(files) + 1  # theirs; ours is deleted again


def test_files_of_our_commit_stay_although_another_writer_has_replaced_them_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The storage denies our commit. Versions within the retention need the files."""
    uri, lake = orders(tmp_path)
    kept, real = contents(uri), DiskStore.put_if_absent

    def denied(store: DiskStore, name: str, data: bytes) -> bool:
        is_ours = real(store, name, data) and name.startswith("_delta_log")
        if is_ours:
            write_deltalake(uri, rows(Random(9), 10, 900), mode="append")
            DeltaTable(uri).optimize.compact()
        return not is_ours

    monkeypatch.setattr(DiskStore, "put_if_absent", denied)
    outcome = compact(lake, no_spark, adopted(uri))
    assert (outcome.version_after, outcome.rows_verified, len(contents(uri))) == (4, 40, 50)
    assert contents(uri, version=4) == kept


def append_and_compact_at_once(
    folder: Path, times: int, *, uri: str = "", storage_options: Mapping[str, str] | None = None
) -> int:
    """A thread appends while this one compacts, so many times each; no row is lost.

    Returns of how many compactions the outcome was unknown.
    """
    uri = uri or str(folder / "orders")
    options = {"storage_options": dict(storage_options or {})}
    lake = lake_with(adopted(uri), folder / "home")
    write_deltalake(uri, rows(Random(0), 10), **options)
    failures, outcomes, unknown = list[BaseException](), list[CompactionOutcome](), 0

    def append() -> None:
        try:
            for place in range(1, times + 1):
                table = rows(Random(place), 10, place * 10)
                write_deltalake(uri, table, mode="append", **options)
        except BaseException as error:
            failures.append(error)

    writer = threading.Thread(target=append)
    writer.start()
    for _ in range(times):
        try:
            outcomes.append(compact(lake, no_spark, adopted(uri)))
        except Transient:
            unknown += 1
    writer.join()
    outcomes.append(compact(lake, no_spark, adopted(uri)))
    assert not failures
    ids = DeltaTable(uri, **options).to_pyarrow_table()["id"].to_pylist()
    assert sorted(ids) == [*range(10 * times + 10)]
    merged = [each for each in outcomes if each.version_after is not None]
    planned = [(each.plan.files_removed, each.plan.files_added) for each in merged]
    logged = [each.entry.compaction for each in merged]
    assert planned == [(each.files_removed, each.files_added) for each in logged]
    assert not compact(lake, no_spark, adopted(uri)).plan.bins
    return unknown


def test_appends_and_compactions_at_once_lose_nothing(tmp_path: Path) -> None:
    assert append_and_compact_at_once(tmp_path, 15) == 0


@pytest.mark.parametrize("damage", [False, True])
def test_a_run_that_was_killed_after_its_commit_is_verified_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: bool
) -> None:
    uri, lake = orders(tmp_path)
    kept = contents(uri)

    monkeypatch.setattr(verify, "equal_by_log", lambda *_: None)  # row counts decide
    with killed_at(run, "verify", "before"):
        compact(lake, no_spark, adopted(uri))
    assert expected(lake, KEY) is not None
    if damage:
        log = Path(uri, "_delta_log", f"{4:020}.json")
        log.write_text(log.read_text().replace(r"numRecords\": 40", r"numRecords\": 39"))
        with pytest.raises(Broken, match="Version 3 is restored"):
            compact(lake, no_spark, adopted(uri))
        assert contents(uri) == kept
        assert brought_back_by(lake.facts(KEY).history.commits[-1]) == 3  # type: ignore[union-attr]
    else:
        assert compact(lake, no_spark, adopted(uri)).version_after is None
    assert expected(lake, KEY) is None


def counts_of_version(_: object, side: Any, __: object) -> dict[object, object]:
    """Row counts that differ before and after a commit."""
    return {(): (side.version, {})}


def test_an_undo_takes_no_rows_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri, lake = orders(tmp_path)

    def append() -> None:
        write_deltalake(uri, rows(Random(9), 10, 900), mode="append")

    monkeypatch.setattr(verify, "equal_by_log", lambda *_: None)
    monkeypatch.setattr(verify, "_by_partition", counts_of_version)
    monkeypatch.setattr(verify, "undo", before_each([append], verify.undo))
    with pytest.raises(Broken, match="Nothing is restored, because another writer has committed"):
        compact(lake, no_spark, adopted(uri))
    assert len(contents(uri)) == 50


def test_a_table_in_a_folder_whose_name_deltalake_misreads_is_compacted(tmp_path: Path) -> None:
    source, _ = orders(tmp_path)
    write_deltalake(str(tmp_path / "a b"), rows(Random(1), 10))
    for place in range(4):
        write_deltalake(str(tmp_path / "a b"), rows(Random(place), 10), mode="append")
    uri = str(tmp_path / "a%20b")
    shutil.copytree(source, uri)
    lake = lake_with(adopted(uri), tmp_path / "home")
    compact(lake, no_spark, adopted(uri))
    assert lake.facts(KEY).snapshot.version == 4  # type: ignore[union-attr]
    assert DeltaTable(str(tmp_path / "a b")).version() == 4


@pytest.mark.parametrize(("text", "spelled"), [("ä", "ä"), ("a+b", "a%2Bb"), ("~", "~")])
def test_no_row_is_doubled_where_the_log_spells_a_path_as_deltalake_would_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, spelled: str
) -> None:
    """Spark writes `text=ä`. deltalake 1.6.6 removes `text=%C3%A4`, and the file stays live."""
    uri, lake = orders(tmp_path)
    shutil.rmtree(uri)
    for place in range(3):
        table = pa.table({"id": [2 * place, 2 * place + 1], "text": [text, text]})
        write_deltalake(uri, table, mode="append", partition_by=["text"])
        log = Path(uri) / "_delta_log" / f"{place:020}.json"
        [path] = [each["add"]["path"] for each in actions_of(uri, place) if "add" in each]
        Path(uri, f"text={text}").mkdir(exist_ok=True)
        name = path.rpartition("/")[2]
        Path(uri, unquote(path)).rename(Path(uri, f"text={text}", name))
        log.write_text(log.read_text().replace(path, f"text={spelled}/{name}"))
    kept = contents(uri)
    with monkeypatch.context() as patch:  # a wrong compaction is undone with the same spelling
        patch.setattr(verify, "equal_by_log", lambda *_: None)
        patch.setattr(verify, "_by_partition", counts_of_version)
        with pytest.raises(Broken, match="Version 2 is restored"):
            compact(lake, no_spark, adopted(uri))
    assert (contents(uri), len(DeltaTable(uri).file_uris())) == (kept, 3)
    assert compact(lake, no_spark, adopted(uri)).entry.compaction.files_removed == 3
    assert (contents(uri), len(DeltaTable(uri).file_uris())) == (kept, 1)


def test_a_table_on_s3_is_compacted_with_the_keys_that_boto3_finds(
    aws: str, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"AWS_ENDPOINT_URL": aws, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}
    uri, lake = orders(tmp_path, f"s3://{bucket}/warehouse/orders", storage_options=options)

    def append() -> None:
        table = rows(Random(9), 10, 900)
        write_deltalake(uri, table, mode="append", storage_options=options)

    real = deltalake_run.compact_by_deltalake
    monkeypatch.setattr(deltalake_run, "compact_by_deltalake", before_each([append], real))
    outcome = compact(lake, no_spark, adopted(uri))
    assert (
        outcome.entry.compaction.files_removed,
        outcome.entry.compaction.files_added,
        outcome.conflicts,
    ) == (4, 1, 0)
    assert (outcome.version_after, outcome.rows_verified) == (5, 40)
    assert len(contents(uri, storage_options=options)) == 50
    keys = [each.key for each in S3Store(bucket, "").walk("")]
    assert all(key.startswith("warehouse/orders/") for key in keys)  # rights may end there


def test_a_table_of_the_lake_itself_is_compacted_on_s3_next_to_tables_elsewhere(
    aws: str, bucket: str, tmp_path: Path
) -> None:
    options = {"AWS_ENDPOINT_URL": aws, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}
    uri, _ = orders(tmp_path, f"s3://{bucket}/lake/{events.key}", storage_options=options)
    settings = own_settings(tmp_path / "home", LAKEHOUSE_ROOT=f"s3://{bucket}/lake")
    lake = open_lake(settings, tables=[adopted(str(tmp_path / "elsewhere"))])
    assert (
        compact(lake, no_spark, replace(events, compaction=QUIET)).entry.compaction.files_removed
        == 4
    )
    assert len(contents(uri, storage_options=options)) == 40
