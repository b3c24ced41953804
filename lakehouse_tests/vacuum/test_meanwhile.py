"""What others do between the plan of a vacuum and its deletions, planted; no Spark: Delta's answer is taken to be our plan."""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from lakehouse import Append, Table
from lakehouse.base.clock import now_ms
from lakehouse.base.errors import Broken, Refused, Transient
from lakehouse.lake import lease
from lakehouse.lake.lake import Lake, open_lake
from lakehouse.lake.state_tables import vacuum_records
from lakehouse.materialize.plan import consume_app_id
from lakehouse.store import DiskStore
from lakehouse.vacuum import run
from lakehouse.vacuum.facts import LakeFacts, gather
from lakehouse.vacuum.run import VacuumProgress, confirmed_by_delta
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.log_builder import START_MS, LogBuilder
from lakehouse_tests.support.faults import (
    KEY,
    LONG_AGO,
    NOW,
    PAST,
    TABLE,
    age,
    carried_out,
    files,
    known_of,
    paths,
    planned,
    report,
    story_of,
)
from lakehouse_tests.support.vacuums import deleted, table_of

WHERE = ("new", "replaced", "made anew", "put back", "declared", "around it")
MODES = ("FULL", "INVENTORY", "LITE")
AGAIN = "it was written again after it was listed"
INSIDE = "a table was created in its folder meanwhile"
DAY_SECONDS = 86_400
COMMIT = f"{KEY}/_delta_log/{{:020}}.json"
LONGER = {"delta__deletedFileRetentionDuration": "interval 5000 days"}


def during(lake: Lake, beside: Callable[[], object], mode: Any = "INVENTORY") -> Any:
    """What a vacuum does, with this between its plan and its deletions."""
    return carried_out(lake, planned(lake, mode), meanwhile=beside)


def nobody() -> Any:
    raise AssertionError("Spark was asked")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return open_lake(own_settings(tmp_path))


@pytest.fixture(autouse=True)
def story(lake: Lake) -> LogBuilder:
    """The table of the faults, and a report of it."""
    story = story_of(lake)
    age(lake)
    report(lake)
    return story


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("inner", ["inner", "d=1/inner", "d", "e=1/f", "d=3"])
def test_files_of_a_new_table_stay(lake: Lake, story: LogBuilder, inner: str, mode: str) -> None:
    """As CONVERT makes one of what lies there: orphans and removed files, as old as they were; the folder may be a partition's."""
    orphan, removed = f"{inner}/part-00000.parquet", f"{inner}/deeper/part-00001.parquet"
    story.append([(removed, 1)]).delete([removed])
    for name in (orphan, removed):
        lake.store.put(f"{KEY}/{name}", b"1")
    age(lake)
    report(lake)
    found = planned(lake, mode)
    listed = [] if mode == "LITE" else [orphan, "d=1/orphan"]
    assert paths(found) == sorted(["d=1/gone", removed, *listed])

    def beside() -> None:
        taken = [("part-00000.parquet", 1), ("deeper/part-00001.parquet", 1)]
        LogBuilder(lake.store, f"{KEY}/{inner}").create().append(taken)

    gone, work = carried_out(lake, found, meanwhile=beside)
    assert gone == {"d=1/gone"} | ({"d=1/orphan"} & {*listed})
    inside = [name for name in paths(found) if name.startswith(f"{inner}/")]
    assert work.spared == dict.fromkeys(inside, INSIDE)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("where", WHERE)
def test_what_a_clone_made_meanwhile_reads_stays(lake: Lake, where: str, mode: str) -> None:
    """It may be new, another version of a table that was known, or another table in its place with no more versions."""
    keys = {"new": "scratch/clone", "declared": "silver/declared", "around it": "bronze"}
    key = keys.get(where, "silver/s")
    clone = LogBuilder(lake.store, key)
    if key == "silver/s":
        clone.create().append([("x", 1)]).append([("y", 1)]).store_data()
        age(lake)
        report(lake)
    names = ["d=1/gone"] if mode == "LITE" else PAST

    def beside() -> None:
        clone.version = {"replaced": 2, "put back": 0}.get(where, -1)
        lake.store.delete([clone.commit_name(version) for version in range(clone.version + 1, 3)])
        if clone.version < 0:
            clone.create()
        clone.overwrite([(f"file://{lake.settings.root}/{KEY}/{name}", 3) for name in names])

    declared = [table_of("silver/declared")]
    gone, work = carried_out(lake, planned(lake, mode), meanwhile=beside, declared=declared)
    assert (gone, [*work.spared]) == (set(), names)


def test_a_clone_that_cannot_be_read_any_more_stops_it(lake: Lake) -> None:
    path = f"file://{lake.settings.root}/{KEY}/d=1/live"
    LogBuilder(lake.store, "silver/s").create().append([(path, 1)])
    age(lake)
    report(lake)
    damaged = f"silver/s/_delta_log/{2:020}.json"
    gone, work = during(lake, lambda: lake.store.put(damaged, b"no action"))
    assert gone == set() and "silver/s cannot be read" in work.failed["error"]


@pytest.mark.parametrize("mode", MODES)
def test_a_retention_raised_meanwhile_holds(lake: Lake, story: LogBuilder, mode: str) -> None:
    found = planned(lake, mode)
    gone, work = carried_out(lake, found, meanwhile=lambda: story.set_properties(**LONGER))
    assert (gone, [*work.spared]) == (set(), paths(found))


def test_raised_retentions_hold_for_what_lost_its_tombstone(lake: Lake, story: LogBuilder) -> None:
    """A checkpoint dropped it by the shorter retention; the commit still tells of the removal. Both files are older than either."""
    story.checkpoint(tombstones=False)
    for name in PAST:
        then = START_MS / 1_000 - DAY_SECONDS
        os.utime(Path(lake.settings.root) / KEY / name, (then, then))
    found = planned(lake, "FULL")
    assert [(each.name, each.part.name) for each in found.candidates] == [
        ("d=1/gone", "TOMBSTONED_PAST"),
        ("d=1/orphan", "ORPHANED_OLD"),
    ]
    removed_hours = (NOW - START_MS) // 3_600_000
    longer = {"delta__deletedFileRetentionDuration": f"interval {removed_hours + 12} hours"}
    gone, _ = carried_out(lake, found, meanwhile=lambda: story.set_properties(**longer))
    assert gone == {"d=1/orphan"}


def test_what_was_brought_back_and_removed_meanwhile_stays(lake: Lake, story: LogBuilder) -> None:
    """The newest version knows nothing of the file; that a version within the retention had it, only its commit tells."""
    remove = {"path": "d=1/orphan", "deletionTimestamp": NOW, "dataChange": True}

    def beside() -> None:
        story.append([("d=1/orphan", 3)]).commit("DELETE", {"remove": remove}, committed_ms=NOW)
        story.checkpoint(tombstones=False)

    gone, work = during(lake, beside)
    assert (gone, [*work.spared]) == ({"d=1/gone"}, ["d=1/orphan"])


def test_a_table_that_its_catalog_took_over_keeps_everything(lake: Lake, story: LogBuilder) -> None:
    features = {key: ["catalogManaged"] for key in ("readerFeatures", "writerFeatures")}
    protocol = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}
    gone, work = during(lake, lambda: story.commit("UPGRADE", protocol))
    assert gone == set() and "catalogManaged" in work.failed["error"]


def _older(lake: Lake) -> None:
    """As a copy of the log from before puts it back."""
    lake.store.delete([COMMIT.format(2)])


def _rewritten(lake: Lake) -> None:
    """The log was put back, and somebody wrote on: another commit under the same number, in which the file is live."""
    _older(lake)
    copy = LogBuilder(lake.store, "copy/t").create(partition_by=["d"])
    copy.append([("d=1/live", 10), ("d=2/live", 20), ("d=1/gone", 30)]).append([("d=3/new", 1)])
    lake.store.put(COMMIT.format(2), lake.store.read(copy.commit_name(2)))


def _of_the_same_size(lake: Lake) -> None:
    name = COMMIT.format(2)
    lake.store.put(name, lake.store.read(name).replace(b"DELETE", b"UPDATE"))


def _rewritten_further(lake: Lake) -> None:
    _rewritten(lake)
    lake.store.put(COMMIT.format(3), lake.store.read(COMMIT.format(2)))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("put_back", [_older, _rewritten, _of_the_same_size, _rewritten_further])
def test_a_log_that_was_put_back_meanwhile_stops_it(
    lake: Lake, put_back: Callable[[Lake], None], mode: str
) -> None:
    gone, work = during(lake, lambda: put_back(lake), mode)
    assert gone == set()
    changed = f"vacuum of {KEY}: the commit of version 2 has changed since it was read"
    assert work.failed["error"].startswith(f"Broken: {changed}")


def _at_another_time(lake: Lake) -> None:
    """As `_rewritten_further`; each commit has the time at which it was made."""
    _rewritten_further(lake)
    lake.store.put(f"{KEY}/d=3/new", b"1")
    for name in (COMMIT.format(2), COMMIT.format(3)):
        at_another = re.sub(rb'"timestamp": ?\d+', b'"timestamp": %d' % NOW, lake.store.read(name))
        lake.store.put(name, at_another)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("put_back", [_older, _at_another_time])
def test_a_log_that_was_put_back_since_the_last_vacuum_stops_the_next(
    lake: Lake, put_back: Callable[[Lake], None], mode: str
) -> None:
    """Files of the lost versions look like orphans; with the newest log in its place again, or by a person's word, the vacuum goes on."""
    log = {file.name: lake.store.read(file.name) for file in lake.store.list(f"{KEY}/_delta_log")}
    VacuumProgress(lake, TABLE).record(planned(lake, mode), has_ended_well=True)
    put_back(lake)
    told = r"the log was replaced by an older copy\. The last vacuum saw version 2; "
    message = f"{told}.* has no such version"
    with pytest.raises(Broken, match=message):
        planned(lake, mode)
    lake.store.delete([COMMIT.format(3)])
    for name, data in log.items():
        lake.store.put(name, data)
    assert paths(planned(lake, "FULL")) == PAST
    put_back(lake)
    lake.store.delete([file.name for file in lake.store.list("_lakehouse/operations")])
    planned(lake, "FULL")


def test_a_log_that_goes_on_or_another_table_is_vacuumed(lake: Lake, story: LogBuilder) -> None:
    VacuumProgress(lake, TABLE).record(planned(lake), has_ended_well=True)
    story.append([("d=1/more", 1)]).store_data()
    assert paths(planned(lake, "FULL")) == PAST
    lake.store.delete([file.name for file in lake.store.list(f"{KEY}/_delta_log")])
    LogBuilder(lake.store, KEY, table_id="another").create(partition_by=["d"])
    assert "d=1/orphan" in paths(planned(lake, "FULL"))


def test_a_reader_that_is_ahead_of_the_log_stops_it(lake: Lake, story: LogBuilder) -> None:
    reader = Table(key="silver/r", inputs=(TABLE,), write=Append(), transform=lambda t: t)
    consumed = (consume_app_id(story.snapshot()), 2)
    LogBuilder(lake.store, "silver/r").create().append([("x", 1)], transaction=consumed)
    assert gather(LakeFacts(lake, [TABLE, reader]), TABLE) is not None
    _older(lake)
    ahead = "silver/r has read version 2, which is no longer in the log"
    with pytest.raises(Broken, match=rf"replaced by an older copy\. {ahead}"):
        gather(LakeFacts(lake, [TABLE, reader]), TABLE)


def test_a_further_try_is_checked_anew(
    lake: Lake, story: LogBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one deleted a file, and its answer was lost; before the next one somebody brings the other file back."""
    delete, tries = DiskStore.delete_each, list[list[str]]()

    def lost(store: DiskStore, names: list[str]) -> Mapping[str, str]:
        tries.append(names)
        delete(store, [f"{KEY}/d=1/orphan"])
        story.append([("d=1/gone", 30)])
        raise Transient("S3 does not answer")

    monkeypatch.setattr(DiskStore, "delete_each", lost)
    gone, work = carried_out(lake, planned(lake, "FULL"))
    assert (gone, [*work.spared], work.deleted_files) == ({"d=1/orphan"}, ["d=1/gone"], 1)
    assert (work.deleted_bytes, work.failed) == (3, {})
    assert tries == [[f"{KEY}/{name}" for name in PAST]]


def test_a_log_with_only_a_checkpoint_left_is_vacuumed(lake: Lake, story: LogBuilder) -> None:
    story.checkpoint().forget_before(3)
    age(lake)
    report(lake)
    assert carried_out(lake, planned(lake))[0] == {*PAST}


def deterministic(lake: Lake, story: LogBuilder) -> str:
    """A file that was removed a month ago, of a name that its writer makes again, as old as its removal."""
    name = "d=1/part-00000.parquet"
    story.append([(name, 30)])
    removed = {"path": name, "deletionTimestamp": LONG_AGO, "dataChange": True, "size": 30}
    story.commit("DELETE", {"remove": removed}, committed_ms=LONG_AGO)
    lake.store.put(f"{KEY}/{name}", b"x" * 30)
    age(lake)
    report(lake)
    return name


@pytest.mark.parametrize("mode", MODES)
def test_a_removed_file_that_is_written_again_and_not_committed_yet_stays(
    lake: Lake, story: LogBuilder, mode: str
) -> None:
    """By a writer that names its files alike in each try; neither the plan nor the log can tell."""
    name = deterministic(lake, story)
    found = planned(lake, mode)
    assert name in paths(found)
    stored = f"{KEY}/{name}"
    gone, work = carried_out(lake, found, meanwhile=lambda: lake.store.put(stored, b"y" * 30))
    assert (name in files(lake), work.spared) == (True, {name: AGAIN})
    assert gone == {*paths(found)} - {name}


@pytest.mark.parametrize("mode", MODES)
def test_files_whose_folder_became_a_link_to_another_table_s_stay(lake: Lake, mode: str) -> None:
    folder = Path(lake.settings.root) / KEY / "d=1"
    theirs = Path(lake.settings.root) / "silver/u/d=1"

    def beside() -> None:
        theirs.parent.mkdir(parents=True)
        folder.rename(theirs)
        folder.symlink_to(theirs)

    _, work = during(lake, beside, mode)
    assert {*work.spared.values()} == {"its folder is a link out of the table's folder"}
    assert {path.name for path in theirs.iterdir()} >= {"gone", "orphan", "live"}


def test_an_orphan_that_is_replaced_by_another_of_old_times_stays(lake: Lake) -> None:
    """As `cp -p` does it: its time says nothing, its size does."""

    def beside() -> None:
        lake.store.put(f"{KEY}/d=1/orphan", b"other bytes")
        age(lake)

    gone, work = carried_out(lake, planned(lake, "FULL"), meanwhile=beside)
    assert (gone, work.spared) == ({"d=1/gone"}, {"d=1/orphan": AGAIN})


@pytest.mark.parametrize("mode", MODES)
def test_a_removed_file_that_was_written_again_before_the_listing_stays(
    lake: Lake, story: LogBuilder, mode: str
) -> None:
    name = deterministic(lake, story)
    lake.store.put(f"{KEY}/{name}", b"y" * 30)
    report(lake)
    found = planned(lake, mode)
    assert (name in paths(found)) == (mode == "LITE")  # only the log is read before the last check
    gone, work = carried_out(lake, found)
    assert name in files(lake) and gone == {*paths(found)} - {name}
    assert work.spared == ({name: AGAIN} if mode == "LITE" else {})


def test_files_that_are_gone_already_count_as_nothing(lake: Lake) -> None:
    gone, work = during(lake, lambda: lake.store.delete([f"{KEY}/d=1/gone"]))
    assert gone == {"d=1/gone", "d=1/orphan"}
    assert (work.deleted_files, work.deleted_bytes, work.spared, work.failed) == (1, 3, {}, {})


def test_what_delta_keeps_stays(lake: Lake) -> None:
    gone, work = carried_out(lake, planned(lake), kept={"d=1/orphan"})
    assert (gone, work.spared) == ({"d=1/gone"}, {"d=1/orphan": "Delta would not delete it"})


def test_if_delta_keeps_everything_or_names_another_file_nothing_is_deleted(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts, found = known_of(lake), planned(lake).candidates
    assert {each.name for each in confirmed_by_delta(lake, nobody, facts, found)} == {*PAST}
    kept = {"d=1/orphan"}
    monkeypatch.setattr(run, "kept_by_deltalake", lambda *_: kept)
    assert [each.name for each in confirmed_by_delta(lake, nobody, facts, found)] == ["d=1/gone"]
    kept.add("d=1/gone")
    with pytest.raises(Broken, match=r"Delta would keep the whole plan \(2 files, for example"):
        confirmed_by_delta(lake, nobody, facts, found)
    names = {f"file:/lake/{KEY}/{name}": name for name in PAST}
    assert run.confirmed_names([f"file:/lake/{KEY}/d=1/gone"], names, table=KEY) == {"d=1/gone"}
    message = rf"Delta would delete file:/lake/{KEY}/d=1/live, a file that the plan does not contain\. Nothing was deleted"
    with pytest.raises(Broken, match=message):
        run.confirmed_names([*names, f"file:/lake/{KEY}/d=1/live"], names, table=KEY)


def test_the_neighbours_are_asked_again_after_a_minute_of_deleting(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clone that is made meanwhile is seen before the next batch."""
    for name, value in (("DELETE_KEYS", 1), ("_CHECK_AGAIN_SECONDS", 0)):
        monkeypatch.setattr(run, name, value)
    for name in ("_ASK_AGAIN_MS", "_ASK_AGAIN_MS_PER_TABLE"):
        monkeypatch.setattr(f"lakehouse.vacuum.facts.{name}", 0)
    delete = run._delete

    def then_cloned(*arguments: Any) -> None:
        delete(*arguments)
        borrowed = f"file://{lake.settings.root}/{KEY}/d=1/orphan"
        LogBuilder(lake.store, "scratch/clone").create().append([(borrowed, 3)])

    monkeypatch.setattr(run, "_delete", then_cloned)
    gone, work = carried_out(lake, planned(lake))
    assert (gone, work.spared) == ({"d=1/gone"}, {"d=1/orphan": "another table reads it"})


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole vacuum whose table nobody else holds, and whose plan Delta agrees to."""
    monkeypatch.setattr(run, "confirmed_by_delta", lambda *arguments: [*arguments[-1]])


@pytest.mark.usefixtures("without_spark")
def test_a_clock_of_another_world_stops_it_before_anything_goes(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "now_ms", lambda: now_ms() + 400_000)
    before = files(lake)
    with pytest.raises(Refused, match="the storage's clock differ by 400 s"):
        run.vacuum(LakeFacts(lake, [TABLE]), lambda: None, TABLE)  # type: ignore[arg-type]  # nobody is asked
    assert files(lake) == before and vacuum_records(lake, KEY) == ()


@pytest.mark.usefixtures("without_spark")
def test_what_went_before_an_error_is_journalled_and_the_next_vacuum_takes_the_rest(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "DELETE_KEYS", 1)
    monkeypatch.setattr(run, "_CHECK_AGAIN_SECONDS", 0)
    honest, name = run._delete, COMMIT.format(2)
    commit = lake.store.read(name)

    def then_put_back(*arguments: Any) -> None:
        honest(*arguments)
        _older(lake)

    with monkeypatch.context() as patch:
        patch.setattr(run, "_delete", then_put_back)
        message = r"version 2 has changed since it was read: .*2.json is gone"
        with pytest.raises(Broken, match=message):
            run.vacuum(LakeFacts(lake, [TABLE]), lambda: None, TABLE, mode="FULL")  # type: ignore[arg-type]
    assert PAST[1] in files(lake) and PAST[0] not in files(lake)
    lake.store.put(name, commit)
    outcome = run.vacuum(LakeFacts(lake, [TABLE]), lambda: None, TABLE)  # type: ignore[arg-type]
    first, second = vacuum_records(lake, KEY)
    assert (first.is_complete, second.is_complete, deleted(outcome)) == (False, True, 1)
    assert (outcome.plan.mode, files(lake)) == ("FULL", {"d=1/live", "d=2/live"})
