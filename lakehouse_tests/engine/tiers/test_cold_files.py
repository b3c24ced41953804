"""Files that a compaction moves into a colder class, and plans that leave cold files alone."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lakehouse.core.compaction.outcome import ColdMove
from lakehouse.core.declaration.compaction_policy import Compaction
from lakehouse.core.declaration.table import Landing, Table
from lakehouse.core.declaration.write_modes import Append
from lakehouse.core.delta.snapshot import TableFacts
from lakehouse.core.inventory.reconcile import Reconciliation
from lakehouse.core.reasons import Reason
from lakehouse.engine.clock import now_ms
from lakehouse.engine.compaction.run import plan
from lakehouse.engine.inventory.reconcile_lake import known_report, reconcile_report
from lakehouse.engine.inventory.scan import scan
from lakehouse.engine.lake import Lake, open_lake
from lakehouse.engine.store import S3Store
from lakehouse.engine.tiers.cold_files import record_cold_files, recorded_classes
from lakehouse.engine.tiers.move_files import move_added
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.core.tiers.test_storage_class_costs import KIB
from lakehouse_tests.engine.store.test_store import answering, error_xml
from lakehouse_tests.log_builder import LogBuilder

KEY = "bronze/t"
TABLE = Table(
    key=KEY,
    source=Landing(prefix="landing/t/", format="json", schema="id BIGINT"),
    write=Append(),
    compaction=Compaction(min_small_files=2, reads_per_day=0),
)


@pytest.fixture
def lake(bucket: str, tmp_path: Path) -> Lake:
    return open_lake(own_settings(tmp_path, LAKEHOUSE_ROOT=f"s3://{bucket}/some/lake"))


@pytest.fixture
def story(lake: Lake) -> LogBuilder:
    """Two partitions of two mergeable files each."""
    files = [(f"d={day}/{name}", 200 * KIB) for day in (1, 2) for name in ("a b", "c")]
    begun = LogBuilder(lake.store, KEY).create(partition_by=["d"])
    return begun.append([(path.replace(" ", "%20"), size) for path, size in files]).store_data()


def classes(lake: Lake) -> dict[str, str]:
    return {
        file.name.removeprefix(f"{KEY}/"): file.storage_class
        for file in lake.store.list(KEY)
        if "_delta_log" not in file.name
    }


def facts_of(lake: Lake) -> TableFacts:
    facts = lake.facts(KEY)
    assert facts is not None
    return facts


def reconciled(lake: Lake) -> Reconciliation:
    scan(lake.store, now_ms=now_ms())
    return reconcile_report(lake, [], known_report(lake, now_ms=now_ms()), now_ms=now_ms())


def test_added_files_move_and_the_next_plan_leaves_their_partition_alone(
    lake: Lake, story: LogBuilder
) -> None:
    facts = facts_of(lake)
    assert (planned := plan(lake, TABLE)) is not None and planned.files_removed == 4
    moved = move_added(lake, facts, ["d=1/a%20b", "d=1/c"], "STANDARD_IA")
    assert moved == ColdMove(storage_class="STANDARD_IA", names=("d=1/a b", "d=1/c"))
    assert moved is not None and moved.sentence == "2 files moved to STANDARD_IA"
    assert classes(lake) == {
        "d=1/a b": "STANDARD_IA",
        "d=1/c": "STANDARD_IA",
        "d=2/a b": "STANDARD",
        "d=2/c": "STANDARD",
    }
    again = plan(lake, TABLE)
    assert again is not None
    assert {dict(bin_.partition)["d"] for bin_ in again.bins} == {"2"}
    move_added(lake, facts, ["d=2/a%20b"], "STANDARD_IA")
    nothing = plan(lake, TABLE)
    assert nothing is not None and nothing.reason is Reason.COLD_TIER


def test_an_inventory_replaces_what_is_recorded(lake: Lake, story: LogBuilder) -> None:
    move_added(lake, facts_of(lake), ["d=1/c"], "GLACIER_IR")
    record_cold_files(lake, reconciled(lake))
    assert recorded_classes(lake, KEY) == {"d=1/c": "GLACIER_IR"}
    empty = Reconciliation(tables=(), unclaimed=())
    outside = replace(lake, elsewhere={KEY: f"s3a://another/{KEY}"})
    record_cold_files(outside, empty)
    assert recorded_classes(lake, KEY) == {"d=1/c": "GLACIER_IR"}
    record_cold_files(lake, empty)
    assert lake.store.list("_lakehouse/cold_files") == []


@pytest.mark.parametrize(
    ("planted", "problem"),
    [
        (
            (403, "AccessDenied"),
            "not moved: 1 file, for example d=1/c: store: cannot change",
        ),
        ((412, "PreconditionFailed"), "was written again while it was copied"),
        ((404, "NoSuchKey"), "not moved: 1 file, for example d=1/c: it is gone"),
    ],
)
def test_a_file_that_cannot_be_moved_stays_and_is_named(
    lake: Lake, story: LogBuilder, planted: tuple[int, str], problem: str
) -> None:
    assert isinstance(lake.store, S3Store)
    status, code = planted
    answering(lake.store.client, "CopyObject", (status, error_xml(code)))
    moved = move_added(lake, facts_of(lake), ["d=1/c"], "STANDARD_IA")
    assert moved is not None and (moved.names, problem in moved.problem) == ((), True)
    assert classes(lake)["d=1/c"] == "STANDARD"
    assert lake.store.read(f"{KEY}/d=1/c") == b"x" * 200 * KIB


def test_storage_that_does_not_answer_fails_no_compaction(lake: Lake, story: LogBuilder) -> None:
    assert isinstance(lake.store, S3Store)
    slow = [(503, error_xml("SlowDown"))] * 20
    answering(lake.store.client, "GetBucketVersioning", *slow)
    moved = move_added(lake, facts_of(lake), ["d=1/c"], "STANDARD_IA")
    assert moved is not None and (moved.names, "SlowDown" in moved.problem) == ((), True)
    assert classes(lake)["d=1/c"] == "STANDARD"


def test_nothing_moves_on_a_disk_in_a_versioned_bucket_or_below_128_kib(
    lake: Lake, story: LogBuilder, tmp_path: Path
) -> None:
    story.append([("d=3/small", 100)]).store_data()
    moved = move_added(lake, facts_of(lake), ["d=3/small"], "STANDARD_IA")
    assert moved == ColdMove(storage_class="STANDARD_IA")
    on_disk = open_lake(own_settings(tmp_path))
    assert move_added(on_disk, facts_of(lake), ["d=1/c"], "STANDARD_IA") is None
    assert isinstance(lake.store, S3Store)
    lake.store.client.put_bucket_versioning(
        Bucket=lake.store.bucket, VersioningConfiguration={"Status": "Enabled"}
    )
    kept: Any = move_added(lake, facts_of(lake), ["d=1/c"], "STANDARD_IA")
    assert (kept.names, "has versions" in kept.problem) == ((), True)
    assert classes(lake)["d=1/c"] == "STANDARD"
