"""Tags of dead files in a bucket, and the rule that moves them."""

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from lakehouse.core.declaration.adopted import Adopted
from lakehouse.core.declaration.table import Table
from lakehouse.core.errors import Broken, Refused
from lakehouse.core.reasons import Reason
from lakehouse.core.tiers.lifecycle_rules import TIER_TAG
from lakehouse.engine.clock import now_ms
from lakehouse.engine.inventory.scan import scan
from lakehouse.engine.lake import Lake, open_lake
from lakehouse.engine.store import S3Store
from lakehouse.engine.store.s3_objects import read_lifecycle, tags_of
from lakehouse.engine.tiers import apply as module
from lakehouse.engine.tiers import bucket_rule
from lakehouse.engine.tiers.apply import TierOutcome, apply, plan
from lakehouse.engine.tiers.bucket_rule import install_rule, rule_of
from lakehouse.engine.tiers.lifecycle_check import check_lifecycle
from lakehouse.engine.tiers.tagged_files import tier_records
from lakehouse.engine.vacuum.lake_facts import LakeFacts
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.core.tiers.test_storage_class_costs import KIB, PRICES
from lakehouse_tests.engine.store.test_s3_objects import FOREIGN
from lakehouse_tests.log_builder import LogBuilder, add_of

KEY = "bronze/t"
SIZE = 128 * KIB
# The history is of 2023, and small files have to pay.
LONG = {"delta.deletedFileRetentionDuration": "interval 9000 days"}
DEAR = replace(PRICES, standard_usd_per_gb_month=23.0)
TABLE = Table(key=KEY, write=Adopted(uri="s3://unused"))


@pytest.fixture
def lake(bucket: str, tmp_path: Path) -> Lake:
    return open_lake(own_settings(tmp_path, LAKEHOUSE_ROOT=f"s3://{bucket}/some/lake"))


@pytest.fixture
def story(lake: Lake) -> LogBuilder:
    """`a` is live, `old` and `older` are removed; a report shows all."""
    begun = LogBuilder(lake.store, KEY).create(properties=LONG)
    begun.append([("a", SIZE), ("old", SIZE), ("older", SIZE)]).store_data()
    begun.delete(["old", "older"])
    scan(lake.store, now_ms=now_ms())
    return begun


def facts_of(lake: Lake) -> LakeFacts:
    return LakeFacts(lake, [TABLE])


def applied(lake: Lake, **more: Any) -> TierOutcome:
    outcome = apply(facts_of(lake), TABLE, DEAR, **more)
    assert outcome is not None
    return outcome


def tags(lake: Lake, *names: str) -> dict[str, str | None]:
    assert isinstance(lake.store, S3Store)
    return {name: tags_of(lake.store, f"{KEY}/{name}").get(TIER_TAG) for name in names}


def restore(story: LogBuilder, name: str) -> None:
    story.commit("RESTORE", add_of(name, size=SIZE))


def test_dead_files_are_tagged_once_and_live_ones_are_not(lake: Lake, story: LogBuilder) -> None:
    planned = plan(facts_of(lake), TABLE, DEAR)
    assert planned is not None
    assert (planned.reason, planned.storage_class) == (Reason.TIER_PAYS, "GLACIER_IR")
    assert tags(lake, "old") == {"old": None}
    outcome = applied(lake)
    assert outcome.tagged == {"old": SIZE, "older": SIZE}
    assert tags(lake, "a", "old", "older") == {
        "a": None,
        "old": "GLACIER_IR",
        "older": "GLACIER_IR",
    }
    [record] = tier_records(lake.store, KEY)
    assert (record.tagged, record.is_complete, record.version) == (outcome.tagged, True, 2)
    assert record.requests["PutObjectTagging"] == 2
    again = applied(lake)
    assert (again.plan.reason, again.tagged) == (Reason.TIER_COSTS_MORE, {})
    assert len(tier_records(lake.store, KEY)) == 1


def test_a_table_on_a_disk_or_without_a_report_is_refused(lake: Lake, tmp_path: Path) -> None:
    on_disk = open_lake(own_settings(tmp_path))
    with pytest.raises(Refused, match="lies on a disk, which has no storage classes"):
        plan(LakeFacts(on_disk, [TABLE]), TABLE, DEAR)
    LogBuilder(lake.store, KEY).create()
    with pytest.raises(Refused, match="Use `lakehouse inventory scan`"):
        plan(facts_of(lake), TABLE, DEAR)
    assert plan(facts_of(lake), replace(TABLE, key="bronze/u"), DEAR) is None


def test_a_file_that_changes_or_comes_back_before_its_tag_is_spared(
    lake: Lake, story: LogBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_tiers = module.record_tiers

    def meanwhile(*arguments: Any) -> None:
        if story.version == 2:
            restore(story, "old")
            lake.store.put(f"{KEY}/older", b"another")
        record_tiers(*arguments)

    monkeypatch.setattr(module, "record_tiers", meanwhile)
    outcome = applied(lake)
    assert (outcome.tagged, dict(outcome.spared)) == (
        {},
        {
            "old": "needed by version 3, a reader or another table, or expired",
            "older": "it is gone, or was written again after the report",
        },
    )
    assert tags(lake, "old", "older") == {"old": None, "older": None}


def test_a_file_that_a_restore_brings_back_during_the_batch_loses_its_tag(
    lake: Lake, story: LogBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_tag = module.set_tag

    def meanwhile(*arguments: Any) -> bool:
        if story.version == 2:
            restore(story, "old")
        return set_tag(*arguments)

    monkeypatch.setattr(module, "set_tag", meanwhile)
    outcome = applied(lake)
    assert (outcome.tagged, outcome.untagged) == ({"older": SIZE}, ("old",))
    assert tags(lake, "old", "older") == {"old": None, "older": "GLACIER_IR"}


def test_a_tagged_file_that_a_restore_brings_back_is_found_and_untagged_first(
    lake: Lake, story: LogBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the run that tagged it was killed before its end."""
    record_tiers, calls = module.record_tiers, list[int]()

    def killed_at_the_end(*arguments: Any) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        record_tiers(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(module, "record_tiers", killed_at_the_end)
        with pytest.raises(KeyboardInterrupt):
            applied(lake)
    restore(story, "old")
    result = check_lifecycle(lake, TABLE, story.snapshot(), now_ms=now_ms())
    assert (result.ok, result.numbers["tagged_live_files"]) == (False, 1)
    planned = plan(facts_of(lake), TABLE, DEAR)
    assert planned is not None and planned.untag == ("old",)
    outcome = applied(lake)
    assert (outcome.untagged, outcome.tagged) == (("old",), {"older": SIZE})
    assert tags(lake, "old", "older") == {"old": None, "older": "GLACIER_IR"}
    assert check_lifecycle(lake, TABLE, story.snapshot(), now_ms=now_ms()).ok


def test_a_tagged_file_that_a_clone_borrows_afterwards_is_found_and_untagged(
    lake: Lake, story: LogBuilder
) -> None:
    """A clone of an older version. Its live files would go to an archive."""
    applied(lake, classes=["GLACIER"])
    assert check_lifecycle(lake, TABLE, story.snapshot(), now_ms=now_ms()).ok
    clone = LogBuilder(lake.store, "bronze/clone").create()
    clone.append([(f"{lake.table_uri(KEY)}/{name}", SIZE) for name in ("a", "old")])
    install_rule(lake, rule_of(lake, "GLACIER"))
    result = check_lifecycle(lake, TABLE, story.snapshot(), now_ms=now_ms())
    assert (result.ok, result.is_error, result.numbers["tagged_live_files"]) == (False, True, 1)
    assert (
        "the tag of dead files is set on 1 needed file of bronze/t, for example old"
        in result.sentence
    )
    assert applied(lake, classes=["GLACIER"]).untagged == ("old",)
    assert tags(lake, "old", "older") == {"old": None, "older": "GLACIER"}
    assert check_lifecycle(lake, TABLE, story.snapshot(), now_ms=now_ms()).ok


def test_the_rule_is_added_once_and_foreign_rules_stay(lake: Lake) -> None:
    assert isinstance(lake.store, S3Store)
    lake.store.client.put_bucket_lifecycle_configuration(
        Bucket=lake.store.bucket, LifecycleConfiguration={"Rules": [FOREIGN]}
    )
    rule = rule_of(lake, "GLACIER_IR")
    assert rule["Filter"]["And"]["Prefix"] == "some/lake/"
    assert [install_rule(lake, rule), install_rule(lake, rule)] == [True, False]
    foreign, ours = read_lifecycle(lake.store).documents
    assert (foreign, ours["ID"]) == (FOREIGN, "lakehouse-tier GLACIER_IR some/lake/")
    [former] = lake.store.list("_lakehouse/lifecycle")
    assert b'"ID":"tidy"' in lake.store.read(former.name)
    assert b"lakehouse-tier" not in lake.store.read(former.name)


def test_a_rule_that_another_program_overwrites_at_the_same_moment_is_broken(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_rule, "put_lifecycle", lambda *_: None)
    with pytest.raises(Broken, match="Another program may have changed them"):
        install_rule(lake, rule_of(lake, "GLACIER_IR"))


@pytest.mark.parametrize("seed", [1])
def test_over_random_histories_in_a_bucket_no_live_file_carries_the_tag(
    lake: Lake, seed: int
) -> None:
    """After each run every object's tags are read, whatever the journal says."""
    random = Random(seed)
    story = LogBuilder(lake.store, KEY).create(properties=LONG)
    live, dead, now = set[str](), set[str](), now_ms()
    for step in range(5):
        fresh = [f"{step}-{number}" for number in range(3)]
        story.append([(name, SIZE) for name in fresh])
        for name in fresh:
            lake.store.put(f"{KEY}/{name}", b"x" * SIZE)
        live |= {*fresh}
        gone = random.sample(sorted(live), k=2)
        story.delete(gone)
        live, dead = live - {*gone}, dead | {*gone}
        scan(lake.store, now_ms=now + step * 60_000)
        if step:
            back = random.choice(sorted(dead))
            restore(story, back)
            live, dead = live | {back}, dead - {back}
        applied(lake)
        found = tags(lake, *live, *dead)
        assert {name for name in live if found[name]} == set()
        assert {name for name in dead if found[name]} == dead
