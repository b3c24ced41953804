"""Faults of reports, keys and writers beside, planted: no file that is needed goes, the reason is clear, the next run heals.

No Spark: where a deletion is tried, Delta's answer is taken to be our plan. Reports that are damaged in themselves: `test_reports.py`.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from lakehouse.base.errors import Refused
from lakehouse.base.reasons import Reason
from lakehouse.compact.verify import expect_verification, settled
from lakehouse.declare.table import Append, Table
from lakehouse.lake.lake import Lake, open_lake
from lakehouse.materialize.plan import consume_app_id
from lakehouse.vacuum import run
from lakehouse.vacuum.facts import LakeFacts, gather
from lakehouse.vacuum.inventory.run import scan
from lakehouse.vacuum.plan.vacuum import VacuumPlan
from lakehouse_tests import log_builder
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.log_builder import START_MS, LogBuilder, add_of
from lakehouse_tests.support.faults import (
    HOUR,
    KEY,
    LONG_AGO,
    NOW,
    PAST,
    TABLE,
    age,
    carried_out,
    inventory_of,
    paths,
    planned,
    report,
    story_of,
    type_of_row,
)
from lakehouse_tests.support.vacuums import table_of

type_of_change = Callable[[type_of_row], type_of_row | None]
ODD = ["a b", "100%", "a%2Fb", "a+b", "ä€😀", "#?&=", "'\",", "new\nline"]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake with a table of one live file in each of two partitions, one file that was removed long ago, and one that no log has."""
    lake = open_lake(own_settings(tmp_path))
    story_of(lake)
    age(lake)
    return lake


def _key(change: Callable[[str], str]) -> type_of_change:
    return lambda row: {**row, "key": change(row["key"])}


def _only(is_shown: Callable[[str], bool]) -> type_of_change:
    return lambda row: row if is_shown(row["key"]) else None


BRONZE = _only(lambda key: key.startswith("bronze/"))
LOCAL_TIME = {"last_modified_date": START_MS - 8 * HOUR}
SECONDS = {"last_modified_date": LONG_AGO // 1_000}
NO_REPORT = r"there is no complete report of configuration 'daily'"
# The change of each row, options of the report, and why it is refused. More in inventory/test_reports.py.
CUT, NOT_OURS = _only(lambda key: "d=2" not in key), _only(lambda key: not key.startswith(KEY))
OLD, AHEAD = {"created_ms": NOW - 30 * HOUR}, {"created_ms": NOW + 3 * HOUR}
OTHER, TWICE = _key(lambda key: f"another/{key}"), _key(lambda key: key.replace("=", "%3D"))
TWO = r"2 of the 2 files .* spells its keys differently"
ONE = r"inventory .* lacks 1 of the 2 files .* for example d=2/live"
EARLY = r"at least 8\.0 h older than in the log\. .* FULL"
UNTRUSTED: dict[str, tuple[Any, Mapping[str, Any], str]] = {
    "old": (dict, OLD, r"daily/.* is 3[01] h old \(limit 26 h\)\. Use .*FULL"),
    "ahead": (dict, AHEAD, r"daily/.* time is 1\d\d min ahead of this machine's clock"),
    "cut short": (CUT, {}, ONE),
    "no row of the table": (NOT_OURS, {}, r"shows no file of bronze/t: .*FULL"),
    "prefix": (OTHER, {}, r"shows no file of bronze/t: .* covers another prefix"),
    "local time": (lambda row: row | LOCAL_TIME, {}, EARLY),
    "encoded twice": (TWICE, {}, TWO),
    "none of this bucket": (dict, {"bucket": "another"}, NO_REPORT),
    "seconds": (lambda row: row | SECONDS, {}, r"Times may be in seconds; use milliseconds"),
}


@pytest.mark.parametrize(("change", "options", "said"), UNTRUSTED.values(), ids=UNTRUSTED)
def test_a_report_that_cannot_be_trusted_is_refused_and_a_listing_does_instead(
    lake: Lake, change: type_of_change, options: Mapping[str, Any], said: str
) -> None:
    def used() -> None:
        report(lake, change, **options)
        planned(lake)

    with pytest.raises(Refused, match=said):
        used()
    assert paths(planned(lake, "FULL")) == PAST


def test_keys_that_were_never_encoded_name_no_file_that_is_needed(lake: Lake) -> None:
    """`a+b` that is not encoded is read as `a b`: here that is another file, which somebody writes just now."""
    lake.store.put(f"{KEY}/d=1/a+b", b"1")
    age(lake)
    report(lake, _key(lambda key: key.replace("+", " ")))
    lake.store.put(f"{KEY}/d=1/a b", b"1")
    found = planned(lake)
    assert paths(found) == ["d=1/a b", *PAST]
    gone, work = carried_out(lake, found)
    assert (gone, work.spared) == ({*PAST}, {"d=1/a b": "it was written again after it was listed"})


def test_live_keys_that_were_never_encoded_are_missed(lake: Lake) -> None:
    LogBuilder(lake.store, "bronze/u").create().append([("a+b", 1)]).store_data()
    age(lake)
    report(lake, _key(lambda key: key.replace("+", " ")))
    message = r"1 of the 1 files .* for example a\+b\. .* spells its keys differently"
    with pytest.raises(Refused, match=message):
        planned(lake, "INVENTORY", table_of("bronze/u"))


def test_the_metadata_that_is_written_for_readers_of_iceberg_stays(lake: Lake) -> None:
    """By UniForm, which a property tells of, or by Apache XTable, of which nothing does; what the log removed goes from there, too."""
    story = LogBuilder(lake.store, "bronze/u").create().append([("live", 1), ("metadata/gone", 1)])
    story.store_data().delete(["metadata/gone"])
    assert story.version == 2
    age(lake)
    report(lake, more=["bronze/u/metadata/v1.metadata.json", "bronze/u/orphan"])
    assert paths(planned(lake, "INVENTORY", table_of("bronze/u"))) == ["metadata/gone", "orphan"]


def test_a_table_made_inside_the_folder_since_the_report_keeps_its_files(lake: Lake) -> None:
    """Nobody declared it; it has files that are old already, since they were converted."""
    report(lake)
    LogBuilder(lake.store, f"{KEY}/inner").create().append([("live", 1)]).store_data()
    age(lake)
    assert paths(planned(lake, "FULL")) == PAST


def test_the_newest_report_of_the_table_is_taken_and_clones_of_others_count(lake: Lake) -> None:
    clone = LogBuilder(lake.store, "scratch/clone").create()
    clone.append([(f"file://{lake.settings.root}/{KEY}/d=1/orphan", 3)])
    age(lake)
    report(lake, created_ms=NOW - 3 * HOUR, configuration="whole")
    report(lake, BRONZE, configuration="bronze")
    assert [inventory_of(planned(lake)), *paths(planned(lake))] == ["bronze", "d=1/gone"]
    scratch = _only(lambda key: key.startswith("scratch/"))
    report(lake, scratch, created_ms=NOW + 1, configuration="scratch")
    assert [inventory_of(planned(lake)), *paths(planned(lake))] == ["bronze", "d=1/gone"]


def test_a_clone_that_was_made_where_reports_have_stopped_is_found_by_a_listing(lake: Lake) -> None:
    """The old report shows all that is declared there, but nobody declared the clone."""
    silver = LogBuilder(lake.store, "silver/s").create().append([("live", 1)]).store_data()
    age(lake)
    of_silver = _only(lambda key: key.startswith("silver/"))
    report(lake, of_silver, created_ms=NOW - 30 * 24 * HOUR, configuration="silver")
    report(lake, BRONZE, configuration="bronze")
    borrowed = f"file://{lake.settings.root}/{KEY}/d=1/orphan"
    LogBuilder(lake.store, "silver/team/clone").create().append([(borrowed, 3)])
    found = planned(lake, "INVENTORY", TABLE, table_of(silver.key))
    assert [inventory_of(found), *paths(found)] == ["bronze", "d=1/gone"]


@pytest.mark.parametrize(
    ("mode", "name"), [("FULL", "orphan"), ("INVENTORY", "orphan"), ("LITE", "gone")]
)
@pytest.mark.parametrize("has_mark", [True, False])
def test_an_old_clone_that_no_report_shows_keeps_what_it_reads_though_its_first_commits_are_gone(
    lake: Lake, mode: str, name: str, has_mark: bool
) -> None:
    """The one report is of a prefix, and shows all that is declared; `_last_checkpoint` is a help for readers, and need not be there."""
    clone = LogBuilder(lake.store, "scratch/clone").create()
    clone.append([(f"file://{lake.settings.root}/{KEY}/d=1/{name}", 3)])
    clone.append([("x", 1)]).checkpoint().forget_before(2)
    if has_mark:
        lake.store.put("scratch/clone/_delta_log/_last_checkpoint", b'{"version":2}')
    age(lake)
    report(lake, BRONZE)
    found = planned(lake, mode)
    assert f"d=1/{name}" not in paths(found)
    assert carried_out(lake, found)[0] == {*paths(found)}


MONTH, DAY = "interval 30 days", "interval 1 day"
BORROWED = "file://{root}/bronze/t/d=1/orphan"


@pytest.mark.parametrize(
    ("key", "path", "retention", "left"),
    [
        ("scratch/clone", BORROWED, MONTH, ["d=1/gone"]),
        ("scratch/clone", BORROWED, DAY, PAST),
        ("bronze", "t/d=1/orphan", MONTH, ["d=1/gone"]),
        # In a folder of its own, it stays as long as the log names it.
        ("bronze", "t/d=1/orphan", DAY, ["d=1/gone"]),
    ],
)
def test_what_an_older_version_of_a_clone_reads_stays_though_a_checkpoint_dropped_its_tombstone(
    lake: Lake,
    monkeypatch: pytest.MonkeyPatch,
    key: str,
    path: str,
    retention: str,
    left: list[str],
) -> None:
    """By the shorter retention of then; the commits still tell of the removal. The other table lies around the first one."""
    monkeypatch.setattr(log_builder, "START_MS", NOW - 48 * HOUR)
    borrowed = path.format(root=lake.settings.root)
    clone = LogBuilder(lake.store, key).create()
    clone.set_properties(delta__deletedFileRetentionDuration="interval 1 hour")
    clone.append([(borrowed, 3)]).delete([borrowed]).append([("x", 1)]).checkpoint(tombstones=False)
    clone.set_properties(delta__deletedFileRetentionDuration=retention)
    age(lake)
    report(lake)
    assert paths(planned(lake)) == left


def test_change_data_stays_with_its_commit_however_long_that_took(lake: Lake) -> None:
    story = LogBuilder(lake.store, "bronze/u").create().append([("live", 1)]).store_data()
    names = ("_change_data/cdc-of-a-long-merge", "_change_data/cdc-of-nobody")
    for name in names:
        lake.store.put(f"bronze/u/{name}", b"1")
    age(lake)
    change = {"path": names[0], "partitionValues": {}, "size": 1, "dataChange": False}
    story.commit("MERGE", {"cdc": change}, committed_ms=NOW - HOUR)
    assert paths(planned(lake, "FULL", table_of("bronze/u"))) == [names[1]]


def is_held_for_reader(lake: Lake, story: LogBuilder, consumed: int, *commit: Any) -> bool:
    """Whether a vacuum holds files for a reader of the changes up to `consumed`, after one more commit."""
    reader = LogBuilder(lake.store, "silver/r").create()
    reader.append([("x", 1)], transaction=(consume_app_id(story.snapshot()), consumed))
    late_ms = story.snapshot().committed_ms
    operation, said, *paths = commit
    removes = ({"path": path, "deletionTimestamp": NOW, "dataChange": True} for path in paths)
    story.commit(operation, *({"remove": each} for each in removes), user_metadata=said)
    table = table_of("bronze/u")
    of_changes = Table(key="silver/r", inputs=(table,), write=Append(), transform=lambda u: u)
    known = gather(LakeFacts(lake, [table, of_changes, TABLE]), table)
    assert known is not None
    is_held = known.needed_because != ""
    assert not is_held or (known.needed_since_ms or 0) <= late_ms
    return is_held


@pytest.mark.parametrize(("restored", "is_held"), [('{"restored":1}', False), (None, True)])
def test_the_undoing_of_a_compaction_holds_nothing_for_those_who_follow_the_changes(
    lake: Lake, restored: str | None, is_held: bool
) -> None:
    story = LogBuilder(lake.store, "bronze/u").create().append([("a", 1), ("b", 1)])
    story.optimize(["a", "b"], into=("c", 2))
    assert is_held_for_reader(lake, story, 1, "RESTORE", restored, "c") is is_held


@pytest.mark.parametrize(("consumed", "is_held"), [(1, True), (2, False)])
def test_rows_that_moved_to_the_archive_unread_are_held_for_those_who_follow_the_changes(
    lake: Lake, consumed: int, is_held: bool
) -> None:
    """Reading the changes of version 2 takes the files that version 3 removed. The move itself is no change."""
    story = LogBuilder(lake.store, "bronze/u").create().append([("a", 1)]).append([("late", 1)])
    moved = "DELETE", '{"rows_moved":"archive"}', "a", "late"
    assert is_held_for_reader(lake, story, consumed, *moved) is is_held


FOLDERS = ["", "/", "/d=1", "/d=1/e", "/_delta_log", "/_delta_log/_sidecars"]
MARKERS = [f"{KEY}{folder}_$folder$" for folder in FOLDERS]
MARKERS.append("silver/empty/_delta_log/_sidecars_$folder$")


@pytest.mark.parametrize("mode", ["FULL", "INVENTORY"])
def test_markers_of_folders_are_never_deleted_and_make_no_table(lake: Lake, mode: Any) -> None:
    """delta-io/delta#466: EMR and older Hadoop mark a folder by a key beside it."""
    for key in MARKERS:
        lake.store.put(key, b"")
    lake.store.put(f"{KEY}/d=1/no_marker_$folder$", b"1")
    age(lake)
    report(lake)
    found = planned(lake, mode)
    assert (paths(found), found.notes) == ([*PAST[:1], "d=1/no_marker_$folder$", *PAST[1:]], ())
    assert {file.name for file in lake.store.list("")}.isdisjoint(MARKERS)
    assert lake.facts("silver/empty") is None
    shown = {table.table: table for table in scan(lake, now_ms=NOW).reconciliation.tables}
    table = shown.pop(KEY)
    assert [*shown] == ["inventory/local"]
    counts = {share.part.name: share.file_count for share in table.shares if share.part}
    assert (counts["FOLDERS"], counts["ORPHANED_OLD"]) == (4, 2)


def test_a_report_of_addresses_instead_of_keys_is_refused_by_name(lake: Lake) -> None:
    report(lake, _key(lambda key: f"s3://local/{key}"))
    with pytest.raises(Refused, match="s3://local/bronze/t cannot be read"):
        planned(lake)


@pytest.mark.parametrize("file_format", ["CSV", "ORC", "Parquet"])
def test_names_of_any_signs_go_and_their_likes_stay(lake: Lake, file_format: str) -> None:
    for name in ODD:
        lake.store.put(f"{KEY}/d={name}/x", b"1")
    age(lake)
    report(lake, file_format=file_format)
    found = planned(lake)
    assert paths(found) == sorted([*PAST, *(f"d={name}/x" for name in ODD)])
    assert carried_out(lake, found)[0] == set(paths(found))


def test_a_dry_run_takes_the_last_look_too(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    report(lake)
    lake.store.put(f"{KEY}/d=1/orphan", b"456")
    assert paths(planned(lake)) == PAST
    monkeypatch.setattr(run, "confirmed_by_delta", lambda *given: [*given[-1]])

    def rehearsed() -> VacuumPlan:
        found = run.rehearse(LakeFacts(lake, [TABLE]), lambda: None, TABLE, mode="INVENTORY")  # type: ignore[arg-type]  # nobody is asked
        assert found is not None
        return found

    found, why = rehearsed(), "it was written again after it was listed"
    assert paths(found) == ["d=1/gone"]
    assert found.sentence.startswith("no version has needed 1 file (30 B) since ")
    assert "and 0 of them never belonged to any version" in found.sentence
    assert found.notes == (f"1 file of the plan will stay, for example d=1/orphan: {why}",)
    lake.store.put(f"{KEY}/d=1/gone", b"x" * 31)
    found = rehearsed()
    assert (found.reason, paths(found)) == (Reason.ALL_STAY, [])
    assert found.notes == (f"2 files of the plan will stay, for example d=1/gone: {why}",)


def test_what_a_compaction_removed_stays_until_its_rows_were_compared(lake: Lake) -> None:
    merged = ["d=1/live", "d=2/live"]
    story_of(lake).optimize(merged, into=("d=3/compacted", 30), user_metadata="marked")
    lake.store.put(f"{KEY}/d=3/compacted", b"x" * 30)
    age(lake)
    expect_verification(lake, KEY, "marked", version=1)
    found = planned(lake, "FULL")
    assert not {*merged} & {*paths(found)}
    kept = "kept for readers that have not read them yet: the verification of a compaction"
    assert kept in found.sentence
    with settled(lake, KEY, "marked"):
        pass
    assert paths(planned(lake, "FULL")) == ["d=1/gone", "d=1/live", "d=1/orphan", "d=2/live"]


def test_writers_beside_take_nothing_from_the_plan_and_a_restore_what_it_needs(lake: Lake) -> None:
    story = story_of(lake)
    age(lake)
    report(lake)
    back = add_of("d=1/gone", partitionValues={"d": "1"}, size=30, modificationTime=LONG_AGO)

    def beside() -> None:
        story.append([("d=3/new", 1)])
        story.optimize(["d=1/live", "d=2/live"], into=("d=3/compacted", 30))
        story.commit("RESTORE", back)

    gone, work = carried_out(lake, planned(lake), meanwhile=beside)
    assert (gone, work.spared) == ({"d=1/orphan"}, {"d=1/gone": "version 5 needs it again"})


def test_a_log_that_vanishes_beside_stops_it(lake: Lake) -> None:
    report(lake)
    found = planned(lake)
    log = [file.name for file in lake.store.list(f"{KEY}/_delta_log")]

    def beside() -> None:
        lake.store.put(f"{KEY}/_delta_log/{3:020}.json", b"{}")
        lake.store.delete(log)

    gone, work = carried_out(lake, found, meanwhile=beside)
    assert gone == set() and work.failed["error"]
