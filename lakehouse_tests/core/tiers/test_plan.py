"""Which dead files are planned for another class: never a live one, and only where it pays."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse.core.errors import Refused
from lakehouse.core.inventory.objects import StoredObject
from lakehouse.core.inventory.table_files import fold_table_files
from lakehouse.core.reasons import Reason
from lakehouse.core.tiers import plan as module
from lakehouse.core.tiers.plan import TIER_CLASSES, TierPlan, dead_files, plan_tiers, still_dead
from lakehouse.core.vacuum.facts import KeptVersion, VacuumFacts
from lakehouse_tests.core.tiers.test_storage_class_costs import GIB, KIB, MIB, PRICES
from lakehouse_tests.log_builder import MINUTE_MS, START_MS, LogBuilder, add_of

DAY = 86_400_000
KEY = "bronze/t"
FOR_100_DAYS = {"delta.deletedFileRetentionDuration": "interval 100 days"}


def facts_of(story: LogBuilder, *, now_ms: int, **more: Any) -> VacuumFacts:
    facts = story.facts()
    files = fold_table_files(
        facts.snapshot,
        resolve=lambda uri: uri.removeprefix("/lake/") if uri.startswith("/lake/") else None,
        commits=facts.history.commits,
        now_ms=now_ms,
    )
    return VacuumFacts(table_files=files, log=facts, tables=frozenset({KEY}), on_s3=True, **more)


def stored(name: str, size: int = GIB, *, storage_class: str | None = "STANDARD") -> StoredObject:
    return StoredObject(
        bucket="b",
        key=f"{KEY}/{name}",
        size_bytes=size,
        modified_ms=START_MS,
        storage_class=storage_class,
    )


def planned(
    story: LogBuilder, objects: list[StoredObject], *, days: float = 1, **more: Any
) -> TierPlan:
    """The plan so many days after the history's begin."""
    now_ms = START_MS + round(days * DAY)
    facts = facts_of(story, now_ms=now_ms, **more)
    return plan_tiers(facts, dead_files(facts, objects, now_ms=now_ms), PRICES)


def names(plan: TierPlan) -> list[str]:
    return [each.name for each in plan.files]


@pytest.fixture
def story() -> LogBuilder:
    """`a` and `b` are live, `old` was removed two minutes after the begin."""
    begun = LogBuilder(key=KEY).create(properties=FOR_100_DAYS)
    return begun.append([("a", GIB), ("b", GIB), ("old", GIB)]).delete(["old"])


ALL = [stored("a"), stored("b"), stored("old")]


def test_a_removed_file_with_a_long_wait_is_planned_with_its_figures(story: LogBuilder) -> None:
    plan = planned(story, ALL)
    assert (plan.reason, plan.storage_class, names(plan)) == (
        Reason.TIER_PAYS,
        "GLACIER_IR",
        ["old"],
    )
    assert plan.sentence == (
        "until the vacuum in 100 days, storing 1 removed file (1 GiB) costs 0.076668 USD; in "
        "GLACIER_IR it would cost 0.013996 USD with all fees, which saves 0.062672 USD"
    )
    assert (plan.dead_count, plan.as_json()["paths"]) == (1, ["old"])


def test_at_a_week_s_retention_the_plan_says_that_it_costs_more(story: LogBuilder) -> None:
    story.set_properties(delta__deletedFileRetentionDuration="interval 7 days")
    plan = planned(story, ALL)
    assert (plan.reason, names(plan)) == (Reason.TIER_COSTS_MORE, [])
    assert plan.sentence == (
        "0 of 1 removed file (1 GiB) would be cheaper in GLACIER_IR: the vacuum deletes each within "
        "8 days, and even one of 1 GiB pays there only after 17 days"
    )
    assert {each["bytes"] for each in plan.as_json()["break_even"]} == {
        *(128 * KIB, MIB, 16 * MIB, 128 * MIB, GIB)
    }


@pytest.mark.parametrize(
    ("objects", "more"),
    {
        "no such object": (ALL[:2], {}),
        "in a cold class already": ([stored("old", storage_class="GLACIER_IR")], {}),
        "of an unknown class": ([stored("old", storage_class=None)], {}),
        "of an unknown time": ([replace(ALL[2], modified_ms=None)], {}),
        "not the newest version": ([replace(ALL[2], is_latest=False)], {}),
        "read by another table": (ALL, {"borrowed": frozenset({f"{KEY}/old"})}),
        "perhaps read by another table": (ALL, {"unplaced": frozenset({"old"})}),
        "of a reader that comes later": (ALL, {"needed_since_ms": START_MS}),
        "in no version": ([stored("orphan")], {}),
        "too small": ([stored("old", 127 * KIB)], {}),
    }.values(),
)
def test_every_other_object_stays(
    story: LogBuilder, objects: list[StoredObject], more: dict[str, Any]
) -> None:
    assert names(planned(story, objects, **more)) == []


def test_a_file_that_a_kept_version_reads_stays(story: LogBuilder) -> None:
    """Its reader may be reading it now, and no vacuum deletes it when the retention has passed."""
    pinned = KeptVersion(version=1, why="pinned by powerbi", files=frozenset({"a", "b", "old"}))
    assert names(planned(story, ALL, kept_versions=(pinned,))) == []


def test_a_file_past_its_retention_is_left_to_the_vacuum(story: LogBuilder) -> None:
    assert names(planned(story, ALL, days=101)) == []


def test_an_unknown_retention_is_refused(story: LogBuilder) -> None:
    story.set_properties(delta__deletedFileRetentionDuration="for ever")
    with pytest.raises(Refused, match=r"tiers of bronze/t: its retention cannot be understood"):
        planned(story, ALL)


def test_one_run_takes_the_files_that_save_most(
    story: LogBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_FILES", 1)
    story.delete(["a"])
    plan = planned(story, [stored("a", 2 * GIB), stored("old")])
    assert (names(plan), plan.left_count) == (["a"], 1)


def test_a_file_that_came_back_is_spared_right_before_the_tag(story: LogBuilder) -> None:
    plan = planned(story, ALL)
    story.commit("RESTORE", add_of("old", size=GIB))
    facts = facts_of(story, now_ms=START_MS + DAY)
    allowed, spared = still_dead(facts, plan.files, now_ms=START_MS + DAY)
    assert (allowed, spared) == (
        [],
        {"old": "needed by version 3, a reader or another table, or expired"},
    )


@given(seed=st.integers(0, 10_000))
def test_over_random_histories_no_live_file_is_planned_and_every_dead_one_is(seed: int) -> None:
    """A model of its own knows what is live: appends, rewrites, deletions, restores, vectors."""
    random = Random(seed)
    story = LogBuilder(key=KEY).create(properties=FOR_100_DAYS)
    live, dead = set[str](), set[str]()
    earlier: TierPlan | None = None
    for step in range(12):
        some = sorted(name for name in live if random.random() < 0.4)
        fresh = f"f{step}"
        match random.choice(["append", "rewrite", "delete", "restore", "vectors", "optimize"]):
            case "rewrite" if some:
                story.rewrite(some, [(fresh, GIB)])
            case "optimize" if some:
                story.optimize(some, into=(fresh, GIB))
            case "delete" if some:
                story.delete(some)
                fresh = ""
            case "vectors" if some:
                story.delete_rows(dict.fromkeys(some, 1))
                some, fresh = [], ""
            case "restore" if dead:
                back = random.choice(sorted(dead))
                gone = [story._remove(name, data_change=True) for name in some]
                story.commit("RESTORE", *gone, add_of(back, size=GIB))
                dead.discard(back)
                live.add(back)
                fresh = ""
            case _:
                some = []
                story.append([(fresh, GIB)])
        live = live - set(some) | ({fresh} if fresh else set())
        dead |= set(some)
        if random.random() < 0.3:
            story.checkpoint()
        now_ms = START_MS + step * MINUTE_MS + DAY
        facts = facts_of(story, now_ms=now_ms)
        if earlier is not None:
            allowed, _ = still_dead(facts, earlier.files, now_ms=now_ms)
            assert live.isdisjoint(each.name for each in allowed)
        objects = [stored(name) for name in sorted(live | dead)]
        found = dead_files(facts, objects, now_ms=now_ms)
        earlier = plan_tiers(facts, found, PRICES, classes=TIER_CLASSES)
        assert names(earlier) == sorted(dead)
