"""A move that dies at any of its writes leaves the old table whole, or the new one, and the next run finishes. Logs are written, no Spark."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from lakehouse import Append, Landing, Table
from lakehouse.core.declaration.landing import retried_folder
from lakehouse.core.errors import Broken, LakehouseError, Refused, Transient
from lakehouse.core.evolution.move import MovePlan
from lakehouse.core.ingest.batches import Batch, LandedFile
from lakehouse.core.journal_records import Pause
from lakehouse.engine.evolution.move_facts import plan_move
from lakehouse.engine.evolution.move_table import TableMove
from lakehouse.engine.evolution.moved_files import MovingFile
from lakehouse.engine.ingest.quarantine.entries import quarantine_key
from lakehouse.engine.journal.journal import Journal
from lakehouse.engine.journal.moves import move_record, refuse_unmoved
from lakehouse.engine.journal.planned_batches import PlannedBatches
from lakehouse.engine.lake import Lake, TableSession, open_lake
from lakehouse.engine.store import S3Store, StoredFile
from lakehouse.engine.vacuum.lake_facts import LakeFacts
from lakehouse.engine.vacuum.plan import plan as plan_vacuum
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.kills import Killed
from lakehouse_tests.log_builder import START_MS, LogBuilder
from lakehouse_tests.memory_store import MemoryStore

OLD, NEW, PREFIX = "bronze/order", "bronze/orders", "landing/orders/"
TABLE = Table(
    key=NEW,
    formerly=OLD,
    source=Landing(prefix=PREFIX, format="json", schema="id BIGINT"),
    write=Append(),
)
RETRIED = f"{PREFIX}{retried_folder(OLD)}"


class DyingStore(MemoryStore):
    """A store whose process dies right before the write that `left` counts down to."""

    left = 1_000_000

    def _step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed

    def put(self, name: str, data: bytes) -> None:
        """See `Store.put`."""
        self._step()
        super().put(name, data)

    def copy(self, source: StoredFile, name: str) -> str:
        """See `Store.copy`."""
        self._step()
        return super().copy(source, name)

    def delete(self, names: Iterable[str]) -> None:
        """See `Store.delete`; it may die between any two names."""
        for name in names:
            self._step()
            super().delete([name])


def old_table(lake: Lake) -> LogBuilder:
    """A landed table with a checkpoint, removed files, a quarantine, a ledger, a pause, and two files of retried lines, one of which is loaded."""
    log = LogBuilder(lake.store, OLD).create().append([("a", 1), ("b", 2)]).append([("c", 3)])
    log.store_data().delete(["a"]).checkpoint().append([("d", 4)]).store_data()
    bad = LogBuilder(lake.store, quarantine_key(OLD), table_id="q").create().append([("q", 1)])
    bad.store_data()
    for name in ("1.jsonl", "2.jsonl"):
        lake.store.put(RETRIED + name, b"{}")
    loaded = LandedFile(name=f"{retried_folder(OLD)}1.jsonl", size_bytes=2, modified_ms=1)
    ledger = PlannedBatches(lake.store, OLD, prefix=PREFIX)
    ledger.plan(Batch(number=1, files=(loaded,), prefix=PREFIX))
    lake.store.put(f"_lakehouse/rebuilds/{OLD}/id/_delta_log/{0:020}.json", b"left of a rebuild")
    Journal(lake.store).pause(Pause(table=OLD, since_ms=1))
    if isinstance(lake.store, MemoryStore):
        for file in lake.store.list(""):
            lake.store.date(file.name, START_MS)
    return log


def move_of(lake: Lake, plan: MovePlan | None = None) -> TableMove:
    """A run of the move, whose locks no one else wants."""
    plan = plan or planned(lake)
    assert plan.refusal == ""
    session = TableSession(lake=lake, spark=cast("Any", None), table=TABLE)
    return TableMove(session, plan, lambda _: None)


def planned(lake: Lake) -> MovePlan:
    """The plan of a move that is not finished."""
    plan = plan_move(lake, TABLE, [TABLE])
    assert plan is not None
    return plan


def whole(lake: Lake, key: str, version: int) -> bool:
    """Whether a table is whole. If it is not, no reader finds any version of it."""
    try:
        facts = lake.facts(key)
    except LakehouseError:
        return False
    if facts is None:
        return False
    assert facts.snapshot.version == version
    return all(lake.store.stat(f"{key}/{file.path}") for file in facts.snapshot.files)


def finish(lake: Lake) -> None:
    """The next run, if anything is left for it."""
    plan = plan_move(lake, TABLE, [TABLE])
    if plan is not None:
        move = move_of(lake, plan)
        move.copy()
        move.delete_old()


def check_moved(lake: Lake, version: int) -> None:
    """Everything is at the new key, and nothing at the old one."""
    assert whole(lake, NEW, version) and whole(lake, quarantine_key(NEW), 1)
    names = [file.name for file in lake.store.list("")]
    assert [name for name in names if OLD in f"{name}/" and f"{OLD}s" not in name] == [
        f"{RETRIED}1.jsonl"
    ]
    assert f"{PREFIX}{retried_folder(NEW)}2.jsonl" in names
    assert PlannedBatches(lake.store, NEW, prefix=PREFIX).ledger().newest is not None
    assert Journal(lake.store).pause_of(NEW) == Pause(table=NEW, since_ms=1)
    assert (move_record(lake.store, TABLE), plan_move(lake, TABLE, [TABLE])) == (None, None)


def test_a_move_that_dies_before_any_of_its_writes_is_finished_by_the_next(tmp_path: Path) -> None:
    """After each death the old table is whole or the new one, and no run of the new key may write."""
    steps, settings = 0, own_settings(tmp_path)
    while True:
        lake = Lake(settings=settings, store=(store := DyingStore()))
        version = old_table(lake).version
        store.left = steps
        try:
            finish(lake)
        except Killed:
            store.left = 1_000_000
            assert any([whole(lake, OLD, version), whole(lake, NEW, version)]), steps
            if steps:
                assert "Use `lakehouse evolve apply" in refusal_of_write(lake), steps
            assert vacuumed(lake) <= {"a"}, steps
            finish(lake)
            check_moved(lake, version)
            steps += 1
            continue
        break
    check_moved(lake, version)
    assert steps > 30


def vacuumed(lake: Lake) -> set[str]:
    """What a vacuum of the new key would delete now; all files are older than its retention."""
    run = LakeFacts(lake, [TABLE])
    try:
        plan = plan_vacuum(run, TABLE, mode="FULL")
    except LakehouseError:
        return set()
    return set() if plan is None else {each.name for each in plan.candidates}


def refusal_of_write(lake: Lake) -> str:
    """Why a run of the new key is refused; empty where it may write."""
    try:
        refuse_unmoved(lake.store, TABLE)
    except Refused as error:
        return str(error)
    return ""


@pytest.fixture(params=["disk", "s3"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """An empty lake on a disk, and in a bucket."""
    if request.param == "disk":
        return open_lake(own_settings(tmp_path))
    bucket = request.getfixturevalue("bucket")
    return open_lake(own_settings(tmp_path, LAKEHOUSE_ROOT=f"s3://{bucket}/some/lake"))


def planted(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, method: str, act: Callable[[], object]
) -> None:
    """Something that others do once, right before the store is first asked for this."""
    store, waiting = lake.store, [act]
    real = getattr(store, method)

    def asked(*arguments: Any) -> Any:
        if waiting:
            waiting.pop()()
        return real(*arguments)

    monkeypatch.setattr(store, method, asked)


@pytest.mark.parametrize("method", ["copy", "delete"])
def test_what_others_commit_during_a_move_is_moved_too(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Also at the very last moment, when the old log begins to go."""
    log = old_table(lake)

    def commit() -> None:
        lake.store.put(f"{OLD}/late", b"1234567")
        log.append([("late", 7)])

    planted(lake, monkeypatch, method, commit)
    finish(lake)
    check_moved(lake, log.version)
    assert "order" not in lake.store.folders("bronze")
    facts = lake.facts(NEW)
    assert facts is not None and "late" in {file.path for file in facts.snapshot.files}


def test_a_commit_right_before_the_deletion_has_its_copy_before_anything_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(settings=own_settings(tmp_path), store=(store := DyingStore()))
    log = old_table(lake)
    move = move_of(lake)
    move.copy()
    real = move._delete

    def commit_first(files: Sequence[MovingFile]) -> None:
        monkeypatch.undo()
        store.put(f"{OLD}/late", b"1234567")
        log.append([("late", 7)])
        real(files)

    def deleted(names: Iterable[str]) -> None:
        assert whole(lake, NEW, log.version), [*names]
        raise Killed

    monkeypatch.setattr(move, "_delete", commit_first)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "delete", deleted)
        with pytest.raises(Killed):
            move.delete_old()


def test_two_histories_of_one_table_both_stay(
    memory: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others commit the same version at both keys, or make a table at the old key once its log is gone."""
    log = old_table(memory)
    move = move_of(memory)
    move.copy()
    commit = log.commit_name(log.version + 1)
    memory.store.put(commit.replace(OLD, NEW), b'{"commitInfo":{"timestamp":1}}')
    log.append([("late", 7)])
    before = [file.name for file in memory.store.list("")]
    with pytest.raises(Broken, match=f"{commit} and {commit.replace(OLD, NEW)} differ"):
        move.delete_old()
    assert [file.name for file in memory.store.list("")] == before


def test_a_table_that_others_make_at_the_old_key_stays(
    memory: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = old_table(memory)
    move = move_of(memory)
    move.copy()
    start = log.commit_name(0)
    put = memory.store.put
    real, done = memory.store.delete, list[str]()

    def delete(names: Iterable[str]) -> None:
        asked = [*names]
        real(asked)
        if start in asked and not done:
            done.append(start)
            put(start, b"another")

    monkeypatch.setattr(memory.store, "delete", delete)
    with pytest.raises(Broken, match=start):
        move.delete_old()
    assert memory.store.read(start) == b"another" and whole(memory, NEW, log.version)


def test_an_object_without_a_copy_is_never_deleted(
    memory: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = old_table(memory).version
    real = memory.store.copy
    lost = f"{OLD}/c"

    def copy(source: StoredFile, name: str) -> str:
        return "" if source.name == lost else real(source, name)

    monkeypatch.setattr(memory.store, "copy", copy)
    with pytest.raises(Transient, match="after 6 comparisons, the two keys still differ"):
        finish(memory)
    assert whole(memory, OLD, version) and not whole(memory, NEW, version)
    monkeypatch.undo()


def test_an_old_folder_that_is_kept_is_left_alone_for_ever(lake: Lake) -> None:
    version = old_table(lake).version
    before = lake.store.list(OLD)
    move = move_of(lake)
    move.copy()
    assert "Use `lakehouse evolve apply" in refusal_of_write(lake)
    move.keep()
    assert lake.store.list(OLD) == before and whole(lake, NEW, version)
    assert (refusal_of_write(lake), plan_move(lake, TABLE, [TABLE])) == ("", None)
    LogBuilder(lake.store, "bronze/other", table_id="o").create()
    other = replace(TABLE, formerly="bronze/other")
    plan = plan_move(lake, other, [other])
    assert plan is not None and f"{NEW} has a table already" in plan.refusal


def test_copies_with_other_etags_count_if_this_run_made_them(bucket: str, tmp_path: Path) -> None:
    """S3 gives the copy of an object that was uploaded in parts, or encrypted with KMS, an ETag of its own."""
    lake = open_lake(own_settings(tmp_path, LAKEHOUSE_ROOT=f"s3://{bucket}/some/lake"))
    log = old_table(lake)
    assert isinstance(lake.store, S3Store)
    client, key = lake.store.client, f"some/lake/{OLD}/c"
    upload = client.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
    place = {"Bucket": bucket, "Key": key, "UploadId": upload}
    etag = client.upload_part(**place, PartNumber=1, Body=b"xxx")["ETag"]
    parts = {"Parts": [{"ETag": etag, "PartNumber": 1}]}
    client.complete_multipart_upload(**place, MultipartUpload=parts)
    source = lake.store.stat(f"{OLD}/c")
    move = move_of(lake)
    move.copy()
    copy = lake.store.stat(f"{NEW}/c")
    assert source is not None and copy is not None and source.etag != copy.etag
    finish(lake)
    check_moved(lake, log.version)


def test_no_reader_takes_a_log_without_its_start_for_a_table(tmp_path: Path) -> None:
    """What the order of the copies and deletions relies on."""
    lake = open_lake(own_settings(tmp_path))
    old_table(lake)
    uri, log = lake.settings.table_uri(OLD), f"{OLD}/_delta_log"
    checkpoint, start = f"{log}/{3:020}.checkpoint.parquet", f"{log}/{0:020}.json"
    for lacking in (start, checkpoint):
        lake.store.delete([lacking])
        if lacking == start:
            assert DeltaTable(uri).version() == 4 and whole(lake, OLD, 4)
    with pytest.raises(DeltaError):
        DeltaTable(uri)
    assert not whole(lake, OLD, 4)


def test_what_cannot_lie_elsewhere_is_not_moved(tmp_path: Path) -> None:
    """Files outside of the folder, readers by absolute paths, tables in the folder; and a shallow clone keeps the old folder."""
    lake = open_lake(own_settings(tmp_path))
    log = old_table(lake)
    LogBuilder(lake.store, "silver/clone", table_id="c").create().append(
        [(f"/{tmp_path}/lake/{OLD}/c", 3)]
    )
    plan = planned(lake)
    assert plan.refusal == "" and "Use --keep-old" in plan.only_kept
    with pytest.raises(Refused, match="silver/clone may read files of bronze/order"):
        plan.checked(keep_old=False)
    assert plan.checked(keep_old=True) is plan
    LogBuilder(lake.store, f"{OLD}/inner", table_id="i").create()
    assert "its folder also has other tables: bronze/order/inner" in planned(lake).refusal
    log.set_properties(**{"delta.universalFormat.enabledFormats": "iceberg"})
    assert "readers of iceberg find its files by absolute paths" in planned(lake).refusal
    log.append([("/elsewhere/x", 1)])
    log.set_properties(**{"delta.universalFormat.enabledFormats": ""})
    assert "its log names files outside of bronze/order, for example" in planned(lake).refusal


def test_keys_with_something_of_their_own_are_not_moved_to(tmp_path: Path) -> None:
    lake = open_lake(own_settings(tmp_path))
    old_table(lake)
    lake.store.put(f"{NEW}/stray", b"1")
    assert f"{NEW} has 1 object that no move has copied" in planned(lake).refusal
    LogBuilder(lake.store, NEW, table_id="other").create()
    assert f"{NEW} has a table already" in planned(lake).refusal
    old = replace(TABLE, key=OLD, formerly=None)
    plan = plan_move(lake, TABLE, [TABLE, old])
    assert plan is not None and f"{OLD} is still declared" in plan.refusal


def test_a_table_that_was_never_made_or_has_moved_needs_no_move(tmp_path: Path) -> None:
    lake = open_lake(own_settings(tmp_path))
    assert plan_move(lake, TABLE, [TABLE]) is None
    assert refusal_of_write(lake) == ""
    assert plan_move(lake, replace(TABLE, formerly=None), [TABLE]) is None
    lake.store.put(f"{OLD}/_delta_log/{0:020}.crc", b"")
    assert "bronze/order/_delta_log holds no table. Leave formerly= out" in planned(lake).refusal
    assert "Use `lakehouse evolve apply" in refusal_of_write(lake)
