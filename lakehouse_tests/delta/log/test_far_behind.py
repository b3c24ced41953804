"""However many commits were made since, what is decided over rows is decided by all of them; the logs alone are read here."""

import json
from dataclasses import replace
from typing import Any

import pytest

from lakehouse.base.errors import Broken, Refused, Transient
from lakehouse.base.reasons import Reason
from lakehouse.compact import run
from lakehouse.compact.plan.history import find_rewrites
from lakehouse.compact.plan.target_size import write_history_of
from lakehouse.compact.verify import expect_verification
from lakehouse.delta.commits import brought_back_by, may_repeat_rows
from lakehouse.delta.log import history_since, newest_first
from lakehouse.lake.lake import Lake
from lakehouse.materialize import run as derived_inputs
from lakehouse.materialize.plan import (
    CREATED_AGAIN,
    NothingNew,
    ReadChanges,
    consume_app_id,
    consumed_by_overwrite,
)
from lakehouse.vacuum.facts import LakeFacts, gather
from lakehouse.vacuum.plan.candidates import VacuumFacts
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.memory_store import MemoryStore
from lakehouse_tests.support.example_lake import copies, counts, events, facts_of, states

MANY = 1_100  # commits; the facts of a table hold 500
nothing_runs: Any = None


def read_facts(lake: Lake, key: str) -> VacuumFacts:
    known = gather(LakeFacts(lake, [events, copies]), replace(events, key=key))
    assert known is not None
    return known


def appended(log: LogBuilder, count: int = MANY) -> LogBuilder:
    for _ in range(count):
        log.append([(f"f{log.version}", 1)])
    return log


def followed(lake: Lake, key: str, *versions: int) -> LogBuilder:
    """A table that consumed these versions of the events, a commit for each."""
    log = LogBuilder(lake.store, key).create()
    app_id = consume_app_id(facts_of(lake, events.key).snapshot)
    for version in versions:
        log.append([(f"f{version}", 1)], transaction=(app_id, version))
    return log


def touched(*logs: LogBuilder) -> None:
    """Many commits that write nothing."""
    for number in range(MANY):
        for log in logs:
            log.set_properties(x=str(number))


def increment(lake: Lake, table: Any = copies) -> Any:
    """The part of the events that is new for a table that follows them."""
    driver, own = facts_of(lake, events.key), facts_of(lake, table.key)
    return derived_inputs.next_increment(lake, table, driver, own)


@pytest.mark.parametrize("table", [copies, states])
def test_who_is_far_behind_reads_the_changes_since_and_not_all(memory: Lake, table: Any) -> None:
    appended(LogBuilder(memory.store, events.key).create()).checkpoint().append([("last", 1)])
    followed(memory, table.key, 3)
    found = increment(memory, table)
    assert isinstance(found, ReadChanges) and found.ranges == ((4, MANY + 1),)


def test_an_input_that_is_older_than_what_was_read_of_it_is_broken(memory: Lake) -> None:
    appended(LogBuilder(memory.store, events.key).create(), 2)
    followed(memory, copies.key, 3)
    message = r"it has consumed version 3 of bronze/events, .* is at version 2: an older copy"
    with pytest.raises(Broken, match=message):
        increment(memory)


def test_another_commit_in_the_place_of_the_one_read_long_ago_is_broken(memory: Lake) -> None:
    source = appended(LogBuilder(memory.store, events.key).create(), 5)
    driver = facts_of(memory, events.key)
    app_id = consume_app_id(driver.snapshot)
    own = LogBuilder(memory.store, copies.key).create()
    read = {"read_ms": {app_id: driver.history.commits[3].committed_ms}}
    consumed = {"txn": {"appId": app_id, "version": 3, "lastUpdated": 1}}
    own.commit("WRITE", consumed, user_metadata=json.dumps(read))
    touched(own)
    assert isinstance(increment(memory), ReadChanges)
    source.version = 2
    source.commit("WRITE", committed_ms=1)
    message = r"it has consumed version 3 of bronze/events, .* an older copy was put in its place"
    with pytest.raises(Broken, match=message):
        increment(memory)


def test_who_followed_long_ago_is_still_known_to_follow(memory: Lake) -> None:
    """Version 3 is a compaction, which version 5 undoes: who followed the changes has all rows right, who read all of 4 has not."""
    log = LogBuilder(memory.store, events.key).create().append([("a", 1), ("b", 1)])
    log.append([("c", 1)])
    log.optimize(["a", "b"], into=("ab", 2)).append([("d", 1)])
    log.commit("RESTORE", user_metadata=json.dumps({"restored": 2}))
    log.append([("e", 1)])
    own = followed(memory, copies.key, 1, 4)
    assert isinstance(increment(memory), ReadChanges)
    touched(own)
    assert isinstance(increment(memory), ReadChanges)


BY_ID = r'merged by \["id"\]'
BY_BOTH = r'merged by \["id", "state"\], so .* restore the declaration'
OTHER_WAYS = [
    (states, {"keys": ["id", "state"]}, rf"{BY_ID}, .* {BY_BOTH}"),
    (states, {"keys": None}, rf"{BY_ID}, .* appended, so "),
    (states, {"inputs": {}}, rf"{BY_ID}, .* overwritten, so "),
    (copies, {"keys": ["id"]}, rf"appended, .* {BY_ID}, so .* restore the declaration"),
    (copies, {"inputs": {}}, "appended, .* overwritten, so "),
]


@pytest.mark.parametrize(("table", "told", "refused"), OTHER_WAYS)
def test_rows_that_were_written_in_another_way_are_not_added_to(
    memory: Lake, table: Any, told: dict[str, Any], refused: str
) -> None:
    """The first commit is of an older program, which told no keys."""
    appended(LogBuilder(memory.store, events.key).create(), 2)
    driver = facts_of(memory, events.key)
    own = followed(memory, table.key, 1)
    assert isinstance(increment(memory, table), ReadChanges)
    consumed = {"txn": {"appId": consume_app_id(driver.snapshot), "version": 1, "lastUpdated": 1}}
    own.commit("WRITE", *([consumed] if "keys" in told else []), user_metadata=json.dumps(told))
    own.set_properties(x="y")
    with pytest.raises(Refused, match=f"{table.key}: its rows are to be {refused}"):
        increment(memory, table)


@pytest.mark.parametrize("is_told", [True, False])
def test_an_overwrite_of_long_ago_is_not_repeated_for_nothing(memory: Lake, is_told: bool) -> None:
    """Also where an older program did not tell when the version was committed; another commit in its place is seen where it was told."""
    source = LogBuilder(memory.store, states.key).create().append([("a", 1)])
    facts = facts_of(memory, states.key)
    when = [facts.history.commits[1].committed_ms] if is_told else []
    read = {"inputs": {states.key: [facts.snapshot.table_id, 1, *when]}}
    log = LogBuilder(memory.store, counts.key).create()
    log.commit("WRITE", user_metadata=json.dumps(read))
    touched(log, source)
    commits = derived_inputs.commits_of(memory, facts_of(memory, counts.key))
    consumed = consumed_by_overwrite(commits)
    found = derived_inputs._increment_of(memory, consumed, facts_of(memory, states.key))
    assert isinstance(found, NothingNew)
    source.version = 0
    source.commit("WRITE", committed_ms=1)
    source.version = MANY + 1
    source.set_properties(x="y")
    found = derived_inputs._increment_of(memory, consumed, facts_of(memory, states.key))
    assert found.reason is (Reason.INPUT_READ_WHOLE if is_told else Reason.INPUTS_UNCHANGED)
    assert is_told == (CREATED_AGAIN in found.sentence)


def compacted_long_ago(lake: Lake) -> None:
    log = LogBuilder(lake.store, events.key).create().append([("a", 1), ("b", 1)])
    log.optimize(["a", "b"], into=("c", 2), user_metadata=json.dumps({"compaction": "a mark"}))
    appended(log)


def test_a_compaction_finds_its_commit_below_any_number_of_others(memory: Lake) -> None:
    compacted_long_ago(memory)
    found = run._facts_since(memory, events, 1).history.marked("a mark")
    assert found is not None and found.version == 2


def test_vacuums_keep_what_a_late_follower_and_an_unverified_compaction_read(memory: Lake) -> None:
    compacted_long_ago(memory)
    followed(memory, copies.key, 3)
    expect_verification(memory, events.key, "a mark", version=1)
    known = read_facts(memory, events.key)
    reads = "read them yet: silver/copies, the verification of a compaction"
    assert known.needed_because.endswith(reads)
    commits = known.all_commits(known.log.history)
    assert [each.version for each in commits] == [*range(MANY + 2, -1, -1)]


def test_older_commits_are_read_only_as_far_as_they_are_asked_for() -> None:
    history = appended(LogBuilder(store := MemoryStore()).create()).checkpoint().facts().history
    store.was_read.clear()
    assert history_since(store, history, MANY - 400).commits == history.commits[-400:]
    assert store.was_read == []
    assert len(history_since(store, history, MANY - 600).commits) == 600
    assert len(store.was_read) < 300


def test_a_gap_ends_the_history_and_a_damaged_commit_is_told() -> None:
    log = appended(LogBuilder().create()).checkpoint().lose(300)
    history = log.facts().history
    versions = [commit.version for commit in newest_first(log.store, history)]
    assert versions == [*range(MANY, 300, -1)]
    assert history_since(log.store, history, 10).between(10, MANY) is None
    log.store.put(log.commit_name(400), b"{")
    with pytest.raises(Broken, match=r"00000000000000000400\.json, line 1 is not a Delta action"):
        history_since(log.store, history, 350)


def test_a_log_that_is_cleaned_up_meanwhile_is_transient() -> None:
    class Cleaned(MemoryStore):
        def read(self, name: str) -> bytes:
            if name.endswith("00000000000000000400.json"):
                raise FileNotFoundError(name)
            return super().read(name)

    log = appended(LogBuilder(Cleaned()).create()).checkpoint()
    with pytest.raises(Transient, match="it was cleaned up while it was read"):
        history_since(log.store, log.facts().history, 350)


ODD = ["7", "[]", '{"plan":7}', '{"compaction":7,"plan":{"files_removed":Infinity}}']
ODD += ['{"restored":[]}', '{"inputs":{"a":7}}', '{"inputs":{"a":["b",Infinity]}}']
ENDLESS = ["[" * 100_000, '{"plan":' * 100_000]


@pytest.mark.parametrize("said", [*ODD, *ENDLESS], ids=lambda said: said[:40])
def test_whatever_somebody_writes_into_a_commit_ends_nothing(memory: Lake, said: str) -> None:
    log = LogBuilder(memory.store, events.key).create().append([("a", 1), ("b", 1)])
    log.optimize(["a", "b"], into=("c", 2), user_metadata=said)
    log.commit("RESTORE", {"remove": {"path": "c", "dataChange": True}}, user_metadata=said)
    for columns in (said, "7", "[[7]]"):
        parameters = {"zOrderBy": columns, "clusterBy": columns}
        log.commit("OPTIMIZE", user_metadata=said, parameters=parameters)
    log.commit("WRITE", user_metadata=said)
    facts = facts_of(memory, events.key)
    assert [brought_back_by(commit) for commit in facts.history.commits] == [None] * 8
    assert len(facts.history.compactions()) == 4
    assert [may_repeat_rows(commit) for commit in facts.history.commits] == [False] * 8
    assert consumed_by_overwrite(derived_inputs.commits_of(memory, facts)) == {}
    assert find_rewrites(facts.history).times == 0
    assert write_history_of(facts.history).last_target is None
