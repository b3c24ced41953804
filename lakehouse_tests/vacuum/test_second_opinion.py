"""deltalake, asked which files a table still needs: what it keeps is kept, and where it cannot know, it is not believed."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import Transient
from lakehouse.base.stored_objects import Part
from lakehouse.declare.adopted import adopted_table
from lakehouse.lake.lake import Lake, open_lake
from lakehouse.vacuum import run
from lakehouse.vacuum.facts import LakeFacts, gather
from lakehouse.vacuum.plan.candidates import Candidate
from lakehouse.vacuum.run import confirmed_by_delta, kept_by_deltalake, rehearse, vacuum
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.log_builder import LogBuilder, add_of
from lakehouse_tests.support.faults import HOUR, KEY, known_of
from lakehouse_tests.support.vacuums import data_files, deleted, table_of
from lakehouse_tests.vacuum.test_meanwhile import lake, nobody

__all__ = ["lake"]  # fixtures

ODD = [f"d={each}/x.parquet" for each in ("a%20b", "%2520", "x%2Fy", "%25", "%C3%BC", "a:b", "%5C")]


def story_of(lake: Lake, **options: Any) -> LogBuilder:
    return LogBuilder(lake.store, KEY).create(partition_by=["d"], **options)


def candidate(name: str) -> Candidate:
    return Candidate(name=name, size_bytes=1, modified_ms=1, part=Part.ORPHANED_OLD)


def removal(path: str, *, hours: float) -> dict[str, Any]:
    stamp = now_ms() - int(hours * HOUR)
    return {"remove": {"path": path, "deletionTimestamp": stamp, "dataChange": True}}


def kept(lake: Lake, *names: str) -> set[str] | None:
    return kept_by_deltalake(lake, known_of(lake), [candidate(name) for name in names])


@pytest.mark.parametrize("checkpoint", [None, "both", "struct"])
def test_only_live_and_recently_removed_files_are_kept(lake: Lake, checkpoint: str | None) -> None:
    names = ("live", "old", "recent", "twice", "again")
    story = story_of(lake).append([(name, 1) for name in names])
    story.commit("DELETE", *(removal(name, hours=800) for name in ("old", "twice", "again")))
    story.append([("twice", 1), ("again", 1)])
    story.commit("DELETE", removal("recent", hours=100), removal("twice", hours=100))
    if checkpoint:
        story.checkpoint(stats=checkpoint)
    assert kept(lake) == {"live", "recent", "twice", "again"}


@pytest.mark.parametrize(
    ("retention", "expected"),
    [
        ("interval 2 hours", {"1"}),
        ("INTERVAL 2 WEEKS", {"1", "3", "200"}),
        ("interval 90 minutes", {"1"}),
        ("interval 20000000000 weeks", None),  # deltalake panics
    ],
)
def test_the_tables_retention_holds_however_it_is_written(
    lake: Lake, retention: str, expected: set[str] | None
) -> None:
    """deltalake by itself takes an interval that it does not know for a week."""
    story = story_of(lake, properties={"delta.deletedFileRetentionDuration": retention})
    story.append([(name, 1) for name in ("1", "3", "200", "400")])
    story.commit("DELETE", *(removal(name, hours=float(name)) for name in ("1", "3", "200", "400")))
    assert kept(lake) == expected


def test_files_with_odd_names_are_recognized(lake: Lake) -> None:
    story = story_of(lake)
    for path in ODD:
        story.append([(path, 1), (f"{path}.recent", 1)])
        story.commit("DELETE", removal(f"{path}.recent", hours=1))
    live = known_of(lake).table_files.live
    assert len(live) == len(ODD) and kept(lake) == {*live, *(f"{name}.recent" for name in live)}


def beside(lake: Lake) -> None:
    """Not the table that our facts are about, but another at its place."""
    LogBuilder(lake.store, KEY, table_id="other").create(partition_by=["d"]).append([("live", 1)])


def reset(lake: Lake) -> None:
    lake.store.delete([f"{KEY}/_delta_log/{1:020}.json"])


def committed(lake: Lake, action: object) -> None:
    lake.store.put(f"{KEY}/_delta_log/{2:020}.json", json.dumps(action).encode())


def own_file(lake: Lake) -> str:
    return f"file://{lake.settings.root}/{KEY}/own.parquet"


def absolute(lake: Lake) -> None:
    committed(lake, add_of(own_file(lake), partitionValues={"d": None}))


def removed_absolute(lake: Lake) -> None:
    committed(lake, removal(own_file(lake), hours=1))


def not_seen(lake: Lake) -> None:
    """deltalake reads a file less than we do."""
    committed(lake, removal("live", hours=900))


def with_feature(lake: Lake, feature: str = "ofTomorrow") -> None:
    features = {"readerFeatures": [feature], "writerFeatures": [feature]}
    committed(lake, {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}})


with_vectors = partial(with_feature, feature="deletionVectors")
CHANGES = [beside, reset, absolute, removed_absolute, with_feature, with_vectors, not_seen]


@pytest.mark.parametrize("change", CHANGES)
def test_where_deltalake_cannot_know_spark_is_asked(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, change: Callable[[Lake], None]
) -> None:
    story_of(lake).append([("live", 1)])
    facts, asked = known_of(lake), [candidate("deletion_vector_1.bin")]
    assert kept_by_deltalake(lake, facts, asked) == {"live"}
    change(lake)
    assert kept_by_deltalake(lake, facts, asked) is None
    with pytest.raises(AssertionError, match="Spark was asked"):
        confirmed_by_delta(lake, nobody, facts, asked)


def test_data_files_of_a_table_with_deletion_vectors_are_judged(lake: Lake) -> None:
    story_of(lake, reader_features=["deletionVectors"]).append([("live.parquet", 1)])
    assert kept(lake, "orphan.parquet") == {"live.parquet"}


def test_a_folder_that_deltalake_reads_as_another_ones_is_not_judged_by_it(lake: Lake) -> None:
    for key, name in (("bronze/a b", "other"), ("bronze/a%20b", "live")):
        LogBuilder(lake.store, key, table_id=name).create().append([(name, 1)])
    table = table_of("bronze/t")
    elsewhere = {KEY: f"{lake.settings.root}/bronze/a%20b"}
    moved = open_lake(lake.settings, tables=[adopted_table(KEY, elsewhere[KEY])])
    found = gather(LakeFacts(moved, [table]), table)
    assert found is not None and found.log.snapshot.table_id == "live"
    assert kept_by_deltalake(moved, found, []) is None


@pytest.mark.parametrize("place", ["disk", "s3"])
def test_a_vacuum_of_what_deltalake_wrote_opens_no_session(
    tmp_path: Path, request: pytest.FixtureRequest, place: str
) -> None:
    options = None
    root = str(tmp_path / "lake")
    if place == "s3":
        root = f"s3://{request.getfixturevalue('bucket')}/lake"
        options = {"AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}
        options["AWS_ENDPOINT_URL"] = request.getfixturevalue("aws")
    lake, table = open_lake(own_settings(tmp_path, LAKEHOUSE_ROOT=root)), table_of()
    properties = {"delta.deletedFileRetentionDuration": "interval 0 hours"}
    written = {"mode": "overwrite", "storage_options": options, "configuration": properties}
    for number in range(2):
        write_deltalake(f"{root}/{KEY}", pa.table({"id": [number]}), **written)
    before = data_files(lake)
    named = rehearse(LakeFacts(lake, [table]), nobody, table, mode="LITE")
    assert named is not None and named.file_count == 1
    outcome = vacuum(LakeFacts(lake, [table]), nobody, table, mode="LITE")
    assert before - data_files(lake) == {named.candidates[0].name}
    assert (deleted(outcome), outcome.spared, outcome.failed) == (1, {}, {})
    read = DeltaTable(f"{root}/{KEY}", storage_options=options)
    assert read.to_pyarrow_table().column("id").to_pylist() == [1]


def test_a_storage_that_does_not_answer_ends_the_vacuum_for_now(
    aws: str, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = open_lake(own_settings(tmp_path, LAKEHOUSE_ROOT=f"s3://{bucket}/lake"))
    story_of(lake).append([("live", 1)])
    facts = known_of(lake)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setattr(run, "open_with_deltalake", refused)
    message = f"vacuum of {KEY}: deltalake cannot reach the table: .*Try again later"
    with pytest.raises(Transient, match=message):
        kept_by_deltalake(lake, facts, [])


def refused(lake: Lake, key: str) -> DeltaTable:
    """One attempt at an address where nothing listens; deltalake itself would try for minutes."""
    options = {"max_retries": "0", "AWS_ALLOW_HTTP": "true"}
    return DeltaTable(lake.table_uri(key), storage_options=options)
