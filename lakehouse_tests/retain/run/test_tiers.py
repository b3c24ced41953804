"""Tags of removed files in a bucket, from the engine, the terminal and Dagster."""

from pathlib import Path
from random import Random

import pytest

from lakehouse.base.errors import Refused
from lakehouse.declare.policies import Vacuum
from lakehouse.declare.table import Adopted, Table
from lakehouse.lake.lake import Lake, open_lake
from lakehouse.lake.state_tables import read_records
from lakehouse.retain.plan.tiers import TierPlan
from lakehouse.retain.run import tiers as module
from lakehouse.retain.run.tiers import check_lifecycle, run
from lakehouse.store import S3Store
from lakehouse.store.s3 import tags_of
from lakehouse.vacuum.facts import LakeFacts
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.log_builder import LogBuilder, add_of
from lakehouse_tests.support.terminal import Terminal

KEY = "bronze/t"
SIZE = 128 * 1024
# The history is of 2023.
LONG = {"delta.deletedFileRetentionDuration": "interval 9000 days"}
TABLE = Table(key=KEY, write=Adopted(uri="s3://unused"), vacuum=Vacuum(tiers=True))


@pytest.fixture
def lake(bucket: str, tmp_path: Path) -> Lake:
    return open_lake(own_settings(tmp_path, LAKEHOUSE_ROOT=f"s3://{bucket}/some/lake"))


@pytest.fixture
def story(lake: Lake) -> LogBuilder:
    """`a` is live, `old` and `older` are removed."""
    begun = LogBuilder(lake.store, KEY).create(properties=LONG)
    begun.append([("a", SIZE), ("old", SIZE), ("older", SIZE)]).store_data()
    return begun.delete(["old", "older"])


def applied(lake: Lake) -> TierPlan:
    plan = run(LakeFacts(lake, [TABLE]), TABLE)
    assert plan is not None
    return plan


def tagged(lake: Lake, *names: str) -> set[str]:
    assert isinstance(lake.store, S3Store)
    return {name for name in names if "lakehouse-tier" in tags_of(lake.store, f"{KEY}/{name}")}


def restore(story: LogBuilder, name: str) -> None:
    story.commit("RESTORE", add_of(name, size=SIZE))


def test_removed_files_are_tagged_once_and_live_ones_are_not(lake: Lake, story: LogBuilder) -> None:
    dry = run(LakeFacts(lake, [TABLE]), TABLE, dry_run=True)
    assert dry is not None and dry.tag == ("old", "older")
    assert tagged(lake, "a", "old", "older") == set()
    lake.store.delete([f"{KEY}/older"])
    assert applied(lake).tag == ("old", "older")  # a file that is gone is no error
    assert tagged(lake, "a", "old") == {"old"}
    assert applied(lake).tag == ()
    assert [*read_records(lake, "tagged_files").values()] == [["old", "older"]]


def test_a_table_on_a_disk_is_refused(lake: Lake, tmp_path: Path) -> None:
    on_disk = open_lake(own_settings(tmp_path))
    with pytest.raises(Refused, match="lies on a disk, which has no storage classes"):
        run(LakeFacts(on_disk, [TABLE]), TABLE)
    assert run(LakeFacts(lake, [TABLE]), TABLE) is None


@pytest.mark.parametrize("step", ["put_records", "_set_tags"])
@pytest.mark.parametrize("call", [1, 2])
def test_after_any_kill_a_restored_file_is_found_and_the_next_run_untags_it(
    lake: Lake, story: LogBuilder, monkeypatch: pytest.MonkeyPatch, step: str, call: int
) -> None:
    original, calls = getattr(module, step), list[int]()

    def killed(*arguments: object, **more: object) -> object:
        calls.append(1)
        result = original(*arguments, **more)
        if len(calls) == call:
            raise KeyboardInterrupt
        return result

    with monkeypatch.context() as patch:
        patch.setattr(module, step, killed)
        with pytest.raises(KeyboardInterrupt):
            applied(lake)
    restore(story, "old")
    result = check_lifecycle(lake, story.snapshot())
    assert (result.ok, result.numbers["tagged_live_files"]) == (False, 1)
    assert "old" in applied(lake).untag
    assert tagged(lake, "a", "old") == set()
    assert check_lifecycle(lake, story.snapshot()).numbers["tagged_live_files"] == 0


def test_a_tagged_file_that_a_clone_borrows_is_untagged(lake: Lake, story: LogBuilder) -> None:
    applied(lake)
    clone = LogBuilder(lake.store, "bronze/clone").create()
    clone.append([(f"{lake.table_uri(KEY)}/{name}", SIZE) for name in ("a", "old")])
    assert applied(lake).untag == ("old",)
    assert tagged(lake, "a", "old", "older") == {"older"}


@pytest.mark.long
def test_over_random_histories_each_run_leaves_the_tag_on_exactly_the_removed_files(
    lake: Lake,
) -> None:
    """After each run, the tags of every object are read, whatever the records say."""
    random = Random(1)
    story = LogBuilder(lake.store, KEY).create(properties=LONG)
    live, dead = set[str](), set[str]()
    for step in range(5):
        fresh = [f"{step}-{number}" for number in range(3)]
        story.append([(name, SIZE) for name in fresh])
        for name in fresh:
            lake.store.put(f"{KEY}/{name}", b"x")
        live |= {*fresh}
        gone = random.sample(sorted(live), k=2)
        story.delete(gone)
        live, dead = live - {*gone}, dead | {*gone}
        if step:
            back = random.choice(sorted(dead))
            restore(story, back)
            live, dead = live | {back}, dead - {back}
        applied(lake)
        assert tagged(lake, *live, *dead) == dead


def test_the_terminal_lists_tags_and_prints_the_rule(bucket: str, aws: str, tmp_path: Path) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    place = {"AWS_ENDPOINT_URL": aws, "AWS_DEFAULT_REGION": "us-east-1"}
    terminal = Terminal(tmp_path, LAKEHOUSE_ROOT=f"s3://{bucket}/lake", **keys, **place)
    key = "bronze/orders"
    store = S3Store(bucket, "lake")
    story = LogBuilder(store, key).create(properties=LONG)
    story.append([("a", SIZE), ("old", SIZE)]).store_data().delete(["old"])
    dry = terminal.run("tiers", key, "--dry-run")
    assert f"{key}/old" in dry.stdout.splitlines()
    assert '"ID": "lakehouse-tier lake/"' in dry.stdout
    document = terminal.json("tiers", key)
    assert (document["reason"], document["tag"], document["untag"]) == ("TIER_DUE", ["old"], [])
    assert document["rule"]["ID"] == "lakehouse-tier lake/"
