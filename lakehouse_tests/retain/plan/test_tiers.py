"""Which removed files are planned for the tag: never a live one, and only if they stay long."""

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse.base.errors import Refused
from lakehouse.base.reasons import Reason
from lakehouse.retain.plan import tiers as module
from lakehouse.retain.plan.tiers import TierPlan, plan_tiers
from lakehouse.vacuum.inventory.plan import OtherUses, fold_table_files
from lakehouse.vacuum.plan.candidates import VacuumFacts
from lakehouse_tests.log_builder import MINUTE_MS, START_MS, LogBuilder, add_of
from lakehouse_tests.support.vacuum_facts import vacuum_facts

DAY = 86_400_000
KIB = 1024
KEY = "bronze/t"
BORROWED = OtherUses(borrowed=frozenset({f"{KEY}/old"}))
FOR_100_DAYS = {"delta.deletedFileRetentionDuration": "interval 100 days"}


def facts_of(story: LogBuilder, **more: Any) -> VacuumFacts:
    facts = story.facts()
    files = fold_table_files(
        facts,
        resolve=lambda uri: uri.removeprefix("/lake/") if uri.startswith("/lake/") else None,
        now_ms=0,
    )
    return vacuum_facts(files, facts, tables=frozenset({KEY}), on_s3=True, **more)


def planned(story: LogBuilder, *tagged: str, days: float = 1, **more: Any) -> TierPlan:
    """The plan so many days after the history's begin."""
    now_ms = START_MS + round(days * DAY)
    return plan_tiers(facts_of(story, **more), {*tagged}, now_ms=now_ms)


@pytest.fixture
def story() -> LogBuilder:
    """`a` and `b` are live, `old` was removed two minutes after the begin."""
    begun = LogBuilder(key=KEY).create(properties=FOR_100_DAYS)
    size = 128 * KIB
    return begun.append([("a", size), ("b", size), ("old", size)]).delete(["old"])


def test_a_removed_file_with_a_long_wait_is_planned(story: LogBuilder) -> None:
    plan = planned(story)
    assert (plan.reason, plan.tag, plan.untag) == (Reason.TIER_DUE, ("old",), ())
    tagged = "to tag: 1 removed file (128 KiB) that will stay for more than a month"
    assert plan.sentence == f"{tagged}; to untag: 0 needed files"


UNPLACED = OtherUses(unplaced=frozenset({"old"}))
STAYS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "tagged already": (("old",), {}),
    "a month before its vacuum": ((), {"days": 71}),
    "past its retention": ((), {"days": 101}),
    "read by another table": ((), {"other_uses": BORROWED}),
    "perhaps read by another table": ((), {"other_uses": UNPLACED}),
    "of a reader that comes later": ((), {"needed_since_ms": START_MS}),
    # Its reader may be reading it now, and no vacuum deletes it when the retention has passed.
    "read by a kept version": ((), {"kept_for_versions": frozenset({"a", "b", "old"})}),
}


@pytest.mark.parametrize(("tagged", "more"), STAYS.values(), ids=STAYS)
def test_all_others_stay(story: LogBuilder, tagged: tuple[str, ...], more: dict[str, Any]) -> None:
    assert planned(story, *tagged, **more).tag == ()


def test_small_files_and_those_of_a_table_with_a_week_s_retention_stay(story: LogBuilder) -> None:
    story.append([("small", 127 * KIB)]).delete(["small"])
    assert planned(story).tag == ("old",)
    story.set_properties(delta__deletedFileRetentionDuration="interval 7 days")
    plan = planned(story)
    assert (plan.reason, plan.tag) == (Reason.NOTHING_TO_TIER, ())


def test_an_unknown_retention_is_refused(story: LogBuilder) -> None:
    story.set_properties(delta__deletedFileRetentionDuration="for ever")
    with pytest.raises(Refused, match=r"tiers of bronze/t: its retention cannot be understood"):
        planned(story)


def test_one_run_takes_the_files_that_were_removed_first(
    story: LogBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_FILES", 1)
    assert planned(story.delete(["a"])).tag == ("old",)


def test_a_tagged_file_that_is_live_again_or_borrowed_is_untagged(story: LogBuilder) -> None:
    assert planned(story, "old", other_uses=BORROWED).untag == ("old",)
    story.commit("RESTORE", add_of("old", size=128 * KIB))
    assert planned(story, "old", "gone").untag == ("old",)


@given(seed=st.integers(0, 10_000))
def test_over_random_histories_no_live_file_is_planned_and_every_dead_one_is(seed: int) -> None:
    """A model of its own knows what is live: appends, rewrites, deletions, restores, vectors."""
    random = Random(seed)
    story = LogBuilder(key=KEY).create(properties=FOR_100_DAYS)
    live, dead = set[str](), set[str]()
    for step in range(12):
        some = sorted(name for name in live if random.random() < 0.4)
        fresh = f"f{step}"
        match random.choice(["append", "rewrite", "delete", "restore", "vectors", "optimize"]):
            case "rewrite" if some:
                story.rewrite(some, [(fresh, 128 * KIB)])
            case "optimize" if some:
                story.optimize(some, into=(fresh, 128 * KIB))
            case "delete" if some:
                story.delete(some)
                fresh = ""
            case "vectors" if some:
                story.delete_rows(dict.fromkeys(some, 1))
                some, fresh = [], ""
            case "restore" if dead:
                back = random.choice(sorted(dead))
                gone = [story._remove(name, data_change=True) for name in some]
                story.commit("RESTORE", *gone, add_of(back, size=128 * KIB))
                dead.discard(back)
                live.add(back)
                fresh = ""
            case _:
                some = []
                story.append([(fresh, 128 * KIB)])
        live = live - set(some) | ({fresh} if fresh else set())
        dead |= set(some)
        if random.random() < 0.3:
            story.checkpoint()
        now_ms = START_MS + step * MINUTE_MS + DAY
        facts = facts_of(story)
        everything = live | dead
        plan = plan_tiers(facts, frozenset(), now_ms=now_ms)
        assert {*plan.tag} == dead
        assert {*plan_tiers(facts, everything, now_ms=now_ms).untag} == live
