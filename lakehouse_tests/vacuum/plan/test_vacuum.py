"""Which files go, by which mode, and why not."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from lakehouse.base.errors import Broken, Refused
from lakehouse.base.operation import VacuumRecord
from lakehouse.base.paths import vector_path
from lakehouse.base.reasons import Reason
from lakehouse.base.stored_objects import Inventory, Part, StoredFile, StoredObject
from lakehouse.declare.policies import SHORT_RETENTION_RISK, Vacuum
from lakehouse.declare.prices import DEFAULT_PRICES
from lakehouse.declare.table import Adopted, Append, Landing, Table
from lakehouse.delta.commits import Commit, Commits
from lakehouse.delta.snapshot import LogTail, Snapshot, TableFacts
from lakehouse.vacuum.inventory.plan import OtherUses, Reference
from lakehouse.vacuum.plan.candidates import (
    Candidate,
    DeletionGuard,
    VacuumFacts,
    folders_to_ask,
    objects_by_log,
    written_once,
)
from lakehouse.vacuum.plan.vacuum import VacuumPlan, choose_mode, plan_vacuum
from lakehouse_tests.support.vacuum_facts import table_files, vacuum_facts

NOW = 1_795_000_000_000
HOUR, DAY = 3_600_000, 86_400_000
WEEK = 7 * DAY
OLD = NOW - 30 * DAY


def adding(version: int, path: str, *removed: str) -> Commit:
    return replace(commit(version, OLD, *removed), added_paths=(path,))


def commit(version: int, ms: int, *removed: str) -> Commit:
    made = Commit(version=version, committed_ms=ms, operation="DELETE", changed_data=True)
    return replace(made, removed_paths=removed)


BOOKS = table_files(
    table="a/t",
    version=3,
    retention_ms=WEEK,
    live={"live": Reference(size_bytes=5, written_ms=OLD)},
    removed={"past": OLD, "kept": NOW - DAY},
)
HISTORY = Commits(
    table="a/t",
    commits=(
        *(commit(0, OLD - DAY), commit(1, OLD, "past")),
        *(commit(2, NOW - DAY, "kept"), commit(3, NOW - HOUR)),
    ),
)


BUSY = replace(HISTORY, commits=HISTORY.commits[3:])  # the newest commit of a busy table


def log_of(history: Commits = HISTORY, **more: Any) -> TableFacts:
    tail = LogTail(checkpoint_version=None, commit_count=4, commit_bytes=4)
    snapshot = Snapshot(
        table="a/t", uri="s3a://b/a/t", version=3, committed_ms=NOW - HOUR, files=(), log=tail
    )
    newest = StoredFile(name="3.json", size_bytes=1, modified_ms=NOW)
    return TableFacts(snapshot=replace(snapshot, **more), history=history, newest=newest)


TABLES = frozenset({"a/t", "a/t/inner"})
FACTS = vacuum_facts(BOOKS, log_of(), on_s3=True, tables=TABLES)


def having(facts: VacuumFacts = FACTS, **files: Any) -> VacuumFacts:
    """The facts with other files of the table."""
    return replace(facts, table_files=replace(facts.table_files, **files))


def using(**others: Any) -> VacuumFacts:
    """The facts with such uses by others."""
    return replace(FACTS, other_uses=OtherUses(**others))


OF_A_CATALOG = replace(FACTS, log=log_of(features=frozenset({"catalogManaged"})))
MANY = having(live={str(number): BOOKS.live["live"] for number in range(5_000)})
INVENTORY = Inventory(
    name="daily/x", created_ms=NOW - 2 * HOUR, object_count=1, size_bytes=1, files=("x",)
)


def past(mode: str = "FULL", ended_ms: int = NOW - 3 * HOUR, **more: Any) -> VacuumRecord:
    fields: dict[str, Any] = {"version": 2, "horizon_ms": ended_ms - WEEK, **more}
    return VacuumRecord(mode=mode, started_ms=ended_ms - 1, ended_ms=ended_ms, **fields)


def stored(name: str, size: int = 1, ms: int | None = OLD, **more: Any) -> StoredObject:
    return StoredObject(bucket="b", key=f"a/t/{name}", size_bytes=size, modified_ms=ms, **more)


ALL = [stored("live", 5), stored("past", 3), stored("kept", 2), stored("orphan", 4)]


def plan(
    objects: list[StoredObject],
    facts: VacuumFacts = FACTS,
    policy: Vacuum | None = None,
    mode: Any = "FULL",
) -> VacuumPlan:
    policy = policy or Vacuum()
    quotes = choose_mode(facts, prices=DEFAULT_PRICES, now_ms=NOW)
    chosen_first = tuple(sorted(quotes, key=lambda quote: quote.mode != mode))
    table = Table(key="bronze/t", write=Adopted(uri="/warehouse/t"), vacuum=policy)
    return plan_vacuum(facts, table, objects, quotes=chosen_first, now_ms=NOW)


LENT = using(borrowed=frozenset({"a/t/past", "a/t/orphan"}))
NEEDED = {
    # A checkpoint dropped its tombstone while the retention was a shorter one.
    "removed by a commit": (having(removed={"past": OLD}), ["orphan", "past"]),
    "removed twice": (having(removed={**BOOKS.removed, "past": NOW - DAY}), ["orphan"]),
    "borrowed by another table": (LENT, []),
    # Its own log names a file whose place nobody can tell: whatever has that name is kept, also before other tables were asked.
    "perhaps read by another way": (having(unplaced=frozenset({"orphan"})), ["past"]),
}


@pytest.mark.parametrize(("facts", "left"), NEEDED.values(), ids=NEEDED)
def test_what_a_version_within_the_retention_or_another_table_may_read_stays(
    facts: VacuumFacts, left: list[str]
) -> None:
    assert [each.name for each in plan(ALL, facts).candidates] == left


def test_a_file_without_a_tombstone_is_looked_for_in_commits_below_the_known_history() -> None:
    """The facts hold the newest commits of a busy table, which may be those of an hour."""
    asked: list[Commits] = []

    def older(history: Commits) -> Iterator[Commit]:
        asked.append(history)
        yield commit(3, NOW - HOUR)
        yield commit(2, NOW - DAY, "kept")
        yield commit(1, OLD, "past")

    busy = replace(FACTS, log=log_of(BUSY), all_commits=older)
    assert [each.name for each in plan(ALL[:3], busy).candidates] == ["past"]
    assert asked == []
    forgotten = having(busy, removed={"past": OLD})
    found = plan(ALL, forgotten)
    assert ([each.name for each in found.candidates], len(asked)) == (["orphan", "past"], 2)
    kept = Candidate(name="kept", size_bytes=2, modified_ms=OLD, part=Part.ORPHANED_OLD)
    guard = DeletionGuard(forgotten, horizon_ms=NOW - WEEK, now_ms=NOW)
    assert guard.still_needed([kept, *found.candidates]) == [kept.name]


@pytest.mark.parametrize(
    ("commits", "outcome"),
    [
        ([adding(2, "orphan"), commit(1, OLD)], "Broken"),
        ([commit(2, OLD), adding(1, "orphan")], "Broken"),
        ([adding(2, "orphan", "orphan"), commit(1, OLD)], "Broken"),  # it got a deletion vector
        ([commit(2, OLD, "orphan"), adding(1, "orphan")], "goes"),
        ([adding(0, "orphan")], "stays"),  # the commit between may have removed it
        ([commit(0, OLD, "orphan")], "goes"),
        ([adding(2, "other")], "goes"),
    ],
)
def test_what_commits_added_and_none_removed_never_goes(
    commits: list[Commit], outcome: str
) -> None:
    """The newest checkpoint lacks it, and is therefore no reason to delete it (delta-io/delta#7174)."""

    def older(history: Commits) -> Iterator[Commit]:
        yield from reversed(history.commits)
        yield from commits

    facts = replace(FACTS, log=log_of(BUSY), all_commits=older)
    if outcome == "Broken":
        message = r"lacks the file orphan\. .* and no commit up to version .* removed it"
        with pytest.raises(Broken, match=message):
            plan(ALL, facts)
    else:
        names = [each.name for each in plan(ALL, facts).candidates]
        assert names == (["orphan", "past"] if outcome == "goes" else ["past"])


def test_a_deletion_vector_of_a_removed_file_is_looked_for_there_too() -> None:
    """Its tombstone is gone, and the commit that removed it lies below the known history."""
    vector = "uab^-aqEH.-t@S}K{vb[*k^@1"
    name = vector_path(vector)
    removal = replace(commit(2, NOW - DAY, "kept"), removed_vectors=(vector, "iab@1"))

    def older(_: Commits) -> Iterator[Commit]:
        yield removal

    assert name is not None
    busy = replace(having(removed={}), log=log_of(BUSY))
    objects = [ALL[0], stored(name), stored("kept", 2)]
    assert [each.name for each in plan(objects, busy).candidates] == [name, "kept"]
    assert not plan(objects, replace(busy, all_commits=older)).candidates


def test_where_the_log_alone_decides_it_is_read_back_to_the_last_complete_vacuum() -> None:
    """The known history of a busy table begins within its retention, so that nothing in it is past that."""

    def older(_: Commits) -> Iterator[Commit]:
        yield commit(3, NOW - HOUR)
        yield commit(2, OLD, "past")
        yield commit(1, OLD - WEEK, "before")
        raise AssertionError("commits before the last vacuum's horizon are nobody's business")

    books = replace(BOOKS, removed={"stone": OLD + DAY, "older_stone": OLD - DAY})
    last = past(ended_ms=OLD + WEEK)
    busy = replace(FACTS, table_files=books, log=log_of(BUSY), all_commits=older, records=(last,))
    by_log = objects_by_log(replace(busy, log_only=True))
    told = {each.key: each.modified_ms for each in by_log}
    assert told == {"a/t/stone": OLD + DAY, "a/t/past": OLD}
    # A sweep finds the other.
    assert [each.key for each in objects_by_log(busy)] == ["a/t/stone"]


@pytest.mark.parametrize(("live", "heads"), [("d=2/live", 5), ("d=1/live", 3)])
@pytest.mark.parametrize("mode", ["LITE", "FULL"])
def test_a_folder_without_live_files_is_asked_by_two_requests(
    mode: Any, live: str, heads: int
) -> None:
    facts = having(live={live: BOOKS.live["live"]}, removed={"d=1/past": OLD})
    found = plan([stored(live, 5), stored("d=1/past", 3)], facts, mode=mode)
    assert [each.name for each in found.candidates] == ["d=1/past"]
    assert found.requests["HEAD"] == heads
    assert found.requests["LIST"] == (mode == "FULL")


def test_what_is_past_its_retention_goes_and_is_priced() -> None:
    found = plan(ALL)
    parts = {each.name: each.part for each in found.candidates}
    assert parts == {"orphan": Part.ORPHANED_OLD, "past": Part.TOMBSTONED_PAST}
    assert (found.reason, found.file_count, found.size_bytes) == (Reason.VACUUM_DUE, 2, 7)
    assert found.requests == {"LIST": 1, "GET": 0, "HEAD": 4, "DELETE": 1} and found.quote.usd > 0
    assert found.as_json()["parts"] == {"orphaned_old": 1, "tombstoned_past": 1}
    assert found.sentence.startswith("no version has needed 2 files (7 B) since ")


@pytest.mark.parametrize(
    "each",
    [
        stored("orphan", ms=None),
        stored("orphan", ms=NOW - DAY),
        stored("past", ms=NOW - DAY),
        stored("past", ms=NOW - WEEK),
        stored("past", ms=None),
        stored("_delta_log/00000000000000000000.json"),
        stored("_delta_log/00000000000000000009.json"),
        stored("_SUCCESS"),
        stored("d=1/.hidden/x"),
        stored("inner/x"),
        stored("d=1/", 0, is_dir=True),
        stored("past", is_latest=False),
        stored("past", is_delete_marker=True),
        stored("x/../live"),
        stored("x//y"),
        StoredObject(bucket="b", key="a/tt/x", size_bytes=1, modified_ms=OLD),
        StoredObject(bucket="b", key="x", size_bytes=1, modified_ms=OLD),
    ],
    ids=lambda each: f"{each.key} {each.modified_ms}",
)
def test_what_stays_whatever_it_is(each: StoredObject) -> None:
    assert plan([stored("live", 5), each]).reason is Reason.NOTHING_PAST


def test_what_readers_have_not_read_stays_and_they_are_named() -> None:
    held = "files are kept for readers: silver/r"
    found = plan(ALL, replace(FACTS, needed_since_ms=OLD - DAY, needed_because=held))
    assert (found.candidates, found.sentence.endswith(f"; {held}")) == ((), True)


CONTROL = [f"d=1/x{character}y" for character in "\x01\0\x1b\uffff"]


@pytest.mark.parametrize("name", ["backup-12:30.parquet", "a:b/c", ":", *CONTROL], ids=ascii)
def test_a_name_that_cannot_be_told_stays_alone(name: str) -> None:
    """One of these made Delta's answer, or the request to delete a thousand, fail for ever."""
    found = plan([*ALL, stored(name)])
    assert [each.name for each in found.candidates] == ["orphan", "past"]


@pytest.mark.parametrize("name", ["d=1/12:30.parquet", "a\tb", "a\r\nb", "\U0001f600"], ids=ascii)
def test_a_name_that_is_only_strange_goes(name: str) -> None:
    assert name in [each.name for each in plan([*ALL, stored(name)]).candidates]


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (having(retention_ms=None), "cannot be understood"),
        (having(retention_ms=DAY), "retention of 24 h is shorter than a week"),
        (OF_A_CATALOG, "catalogManaged is unknown, so this program cannot know"),
    ],
)
def test_a_table_that_may_not_be_vacuumed_is_refused(facts: VacuumFacts, why: str) -> None:
    with pytest.raises(Refused, match=why):
        plan(ALL, facts)


SHORT = Vacuum(accepts_short_retention=SHORT_RETENTION_RISK)


def test_a_short_retention_that_was_accepted_is_taken() -> None:
    assert len(plan(ALL, having(retention_ms=HOUR), SHORT).candidates) == 3


def test_a_report_without_a_live_file_is_refused_and_storage_without_one_is_broken() -> None:
    facts = replace(FACTS, inventory=INVENTORY)
    lacks = "daily/x lacks 1 of the 1 files that the newest version reads, for example live"
    with pytest.raises(Refused, match=f"inventory {lacks}"):
        plan(ALL[1:], facts, mode="INVENTORY")
    with pytest.raises(Broken, match="storage lacks 1 of the 1 files"):
        plan(ALL[1:], facts)


def later(found: VacuumPlan, facts: VacuumFacts, *, now_ms: int = NOW) -> list[Candidate]:
    guard = DeletionGuard(facts, horizon_ms=found.horizon_ms, now_ms=now_ms)
    needed = guard.still_needed(found.candidates)
    return [each for each in found.candidates if each.name not in needed]


def test_without_any_retention_what_is_doomed_stays_doomed() -> None:
    at_once = having(retention_ms=0)
    found = plan(ALL, at_once, SHORT)
    assert later(found, at_once) == list(found.candidates) != []
    assert later(found, having(retention_ms=None)) == []


def test_the_log_alone_tells_what_was_removed_since_the_last_vacuum() -> None:
    assert {each.key for each in objects_by_log(FACTS)} == {"a/t/past", "a/t/kept"}
    # What failed is tried again, but for a name that somebody may have written again.
    once = "part-00000-0b4e1d6c-4d0c-4a3f-9a58-0123456789ab.c000.snappy.parquet"
    failed = dict.fromkeys(("past", once, "orphan"), "AccessDenied")
    later = replace(FACTS, records=(past(failed=failed, horizon_ms=NOW - 2 * DAY),))
    told = {each.key: each.modified_ms for each in objects_by_log(later)}
    assert told.keys() == {"a/t/kept", "a/t/past", f"a/t/{once}"}
    # By the time of its removal: a file that was written again before the last vacuum is newer than that.
    assert told["a/t/past"] == BOOKS.removed["past"] and BOOKS.removed["past"] < NOW - 2 * DAY
    unfinished = replace(FACTS, records=(past(), past(is_complete=False, horizon_ms=NOW)))
    assert {each.key for each in objects_by_log(unfinished)} == {"a/t/kept"}
    of_log = list(objects_by_log(FACTS))
    assert [each.name for each in plan(of_log, mode="LITE").candidates] == ["past"]


def known(
    *records: VacuumRecord, facts: VacuumFacts = FACTS, inventory: Inventory | None = None
) -> VacuumFacts:
    return replace(facts, inventory=inventory, records=records)


TOO_OLD = {"INVENTORY": "is 31 h old (limit 26 h)", "LITE": "40 h ago"}
NEVER = {"LITE": "storage was never searched for orphans"}
NEW, OLDER = past(ended_ms=NOW - HOUR), past(ended_ms=NOW - 25 * HOUR)
LATE = replace(INVENTORY, created_ms=NOW - 31 * HOUR)
SHORT_LOG = replace(FACTS, log=log_of(replace(HISTORY, commits=HISTORY.commits[2:])))
# What is known, the mode, and why not another one.
MODES: list[tuple[VacuumFacts, str, dict[str, str]]] = [
    (FACTS, "FULL", {**NEVER, "INVENTORY": "there is no inventory"}),
    (known(inventory=INVENTORY), "FULL", NEVER),
    (known(facts=MANY, inventory=INVENTORY), "INVENTORY", NEVER),
    (known(past(), inventory=INVENTORY), "LITE", {}),
    (known(NEW, inventory=INVENTORY), "LITE", {"INVENTORY": "older than the last vacuum"}),
    (known(OLDER, past("LITE", ended_ms=NOW - HOUR)), "FULL", {"LITE": "25 h ago"}),
    (known(OLDER, past(ended_ms=NOW, is_complete=False)), "FULL", {"LITE": "25 h ago"}),
    (known(OLDER, facts=MANY, inventory=INVENTORY), "INVENTORY", {"LITE": "25 h ago"}),
    (known(past(ended_ms=NOW - 40 * HOUR), inventory=LATE), "FULL", TOO_OLD),
    (known(past(), facts=SHORT_LOG), "FULL", {"LITE": "the log no longer names"}),
]


@pytest.mark.parametrize(("facts", "mode", "why_not"), MODES)
def test_the_cheapest_valid_mode_is_taken(
    facts: VacuumFacts, mode: str, why_not: dict[str, str]
) -> None:
    quotes = choose_mode(facts, prices=DEFAULT_PRICES, now_ms=NOW)
    assert quotes[0].mode == mode
    said = {quote.mode: quote.why_not for quote in quotes}
    assert all(text in said[name] for name, text in why_not.items()), said  # type: ignore[index]
    assert said["FULL"] == ""


def test_a_mode_that_is_wanted_is_taken_only_if_it_is_valid() -> None:
    quotes = choose_mode(FACTS, prices=DEFAULT_PRICES, now_ms=NOW, requested="LITE")
    assert quotes[0].mode == "LITE"
    with pytest.raises(Refused, match=r"by mode INVENTORY: there is no inventory\. Use LITE, FULL"):
        choose_mode(FACTS, prices=DEFAULT_PRICES, now_ms=NOW, requested="INVENTORY")
    with pytest.raises(Refused, match=r"mode is 'ALL'\. Use LITE, INVENTORY, FULL"):
        choose_mode(FACTS, prices=DEFAULT_PRICES, now_ms=NOW, requested="ALL")  # type: ignore[arg-type]


ACCEPTED = {"accepts_short_retention": SHORT_RETENTION_RISK}


@pytest.mark.parametrize(
    ("knobs", "why"),
    [
        ({"mode": "always"}, "Vacuum.mode is 'always'"),
        ({"after_compaction": "yes"}, "Vacuum.after_compaction is 'yes'"),
        ({"retention_hours": 24}, "Vacuum.retention_hours is 24, under a week"),
        ({"retention_hours": 0.01, **ACCEPTED}, "Vacuum.retention_hours is 0.01, under a minute"),
        ({"accepts_short_retention": "ok"}, "Vacuum.accepts_short_retention is 'ok'"),
        ({"retention_hours": -1}, "Vacuum.retention_hours is -1"),
        ({"retention_hours": float("nan")}, "Vacuum.retention_hours is nan"),
    ],
)
def test_a_knob_that_cannot_be_is_refused(knobs: dict[str, Any], why: str) -> None:
    with pytest.raises(Refused, match=why):
        Vacuum(**knobs)


def test_the_retention_is_a_property_and_contradicts_no_other() -> None:
    deleted, logs = "delta.deletedFileRetentionDuration", "delta.logRetentionDuration"
    assert Vacuum().retention_properties({}) == {}
    shorter = Vacuum(retention_hours=200)
    assert shorter.retention_properties({}) == {deleted: "interval 12000 minutes"}
    longer = dict.fromkeys((deleted, logs), "interval 48000 minutes")
    assert Vacuum(retention_hours=800).retention_properties({}) == longer
    for hours, kept, is_set in ((800, "interval 365 days", False), (200, "interval 3 days", True)):
        properties = Vacuum(retention_hours=hours).retention_properties({logs: kept})
        assert (logs in properties) is is_set
    message = r"Vacuum\.retention_hours to 'interval 12000 minutes'\. Set it in one place"
    landing = Landing(prefix="landing/t/", format="json", schema="id BIGINT")
    declared: dict[str, Any] = {"key": "bronze/t", "source": landing, "write": Append()}
    with pytest.raises(Refused, match=message):
        Table(**declared, vacuum=shorter, properties={deleted: "interval 7 days"})


WRITER = "part-00000-0b4e1d6c-4d0c-4a3f-9a58-0123456789ab"


@pytest.mark.parametrize(
    ("name", "once"),
    [
        (f"{WRITER}.c000.snappy.parquet", True),
        (f"d=1/new\nline/{WRITER}-c000.snappy.parquet", True),
        ("deletion_vector_0b4e1d6c-4d0c-4a3f-9a58-0123456789ab.bin", True),
        ("part-00000.parquet", False),
        ("0b4e1d6c-4d0c-4a3f-9a58-0123456789ab.parquet", False),
        (f"{WRITER}/x.parquet", False),
    ],
)
def test_only_names_of_a_writer_s_own_are_written_once(name: str, once: bool) -> None:
    assert written_once(name) is once


def test_landed_files_below_a_table_stay() -> None:
    """The declaration refuses such a prefix; a lake may have been declared before that."""
    below = [stored("incoming/x.json"), stored("incoming/d/y.json", ms=NOW)]
    objects = [*ALL, *below, stored("incomings/z")]
    found = plan(objects, using(landed=("a/t/incoming/", "landing/t/")))
    assert [each.name for each in found.candidates] == ["incomings/z", "orphan", "past"]
    assert later(plan(objects), using(landed=("a/t/",))) == []


def test_a_live_file_in_another_table_s_folder_is_not_missing_and_nothing_there_goes() -> None:
    live = {**BOOKS.live, "inner/live": BOOKS.live["live"]}
    facts = having(live=live, removed={**BOOKS.removed, "inner/old": OLD})
    inner = [stored("inner/live", 5), stored("inner/old"), stored("inner/orphan")]
    objects = [*ALL, *inner, stored("inner/young", ms=NOW)]
    assert [each.name for each in plan(objects, facts).candidates] == ["orphan", "past"]
    assert plan(objects, facts).notes == ()


REMOVED_LATER = log_of(replace(HISTORY, commits=(commit(4, NOW - DAY, "orphan"),)))
LATER = {
    "longer": (having(retention_ms=40 * DAY), []),
    "still past": (having(retention_ms=8 * DAY), ["orphan", "past"]),
    "shorter": (having(retention_ms=HOUR), ["orphan", "past"]),
    "catalog": (OF_A_CATALOG, []),
    "needed again": (having(live={**BOOKS.live, "past": BOOKS.live["live"]}), ["orphan"]),
    "lent": (using(borrowed=frozenset({"a/t/orphan"})), ["past"]),
    "perhaps lent": (using(unplaced=frozenset({"past"})), ["orphan"]),
    "perhaps its own": (having(unplaced=frozenset({"past"})), ["orphan"]),
    "removed within the retention": (replace(FACTS, log=REMOVED_LATER), ["past"]),
}


@pytest.mark.parametrize(("facts", "left"), LATER.values(), ids=LATER)
def test_what_later_facts_need_is_not_doomed_any_more(facts: VacuumFacts, left: list[str]) -> None:
    assert [each.name for each in later(plan(ALL), facts)] == left


def test_the_horizon_moves_back_with_the_clock_and_never_on() -> None:
    early, late = stored("early", ms=NOW - WEEK - DAY), stored("late", ms=NOW - WEEK - 1)
    found = plan([stored("live", 5), early, late])
    assert [each.name for each in found.candidates] == ["early", "late"]
    assert [each.name for each in later(found, FACTS, now_ms=NOW - HOUR)] == ["early"]
    young = plan([stored("live", 5), early], replace(FACTS, needed_since_ms=NOW - WEEK - HOUR))
    both = replace(young, candidates=found.candidates)
    assert later(both, FACTS, now_ms=NOW + DAY) == [found.candidates[0]]


@pytest.mark.parametrize(
    ("name", "folders"), [("x", []), ("a/x", ["a"]), ("a/d=1/x", ["a", "a/d=1"])]
)
def test_a_table_may_be_made_in_every_folder_above_a_file(name: str, folders: list[str]) -> None:
    assert folders_to_ask(FACTS, "FULL", [name]) == folders


def test_a_folder_with_files_of_the_newest_version_is_the_table_s_own_unless_none_were_listed() -> (
    None
):
    live = {"d=1/e=1/live": BOOKS.live["live"]}
    facts = replace(having(live=live, partition_columns=("d", "e")), adopted=True)
    dead = ["d=1/e=1/dead", "d=1/e=2/dead", "d=2/e=1/dead"]
    for mode in ("FULL", "INVENTORY"):
        assert folders_to_ask(facts, mode, dead) == ["d=1/e=2", "d=2", "d=2/e=1"]
    every = ["d=1", "d=1/e=1", "d=1/e=2", "d=2", "d=2/e=1"]
    assert folders_to_ask(facts, "LITE", dead) == every
