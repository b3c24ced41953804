"""Manifests that can be trusted, keys, and an inventory held against logs to the byte."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse.base.errors import Refused
from lakehouse.base.paths import name_below, vector_path
from lakehouse.base.stored_objects import Part, StoredFile, StoredObject
from lakehouse.delta.commits import Commits
from lakehouse.delta.protocol import retention_ms_of
from lakehouse.delta.snapshot import DataFile, LogTail, Snapshot, TableFacts, Tombstone
from lakehouse.vacuum.inventory.plan import (
    KnownTables,
    Owners,
    Reconciliation,
    Reference,
    TableFiles,
    TableShares,
    fold_table_files,
    reconcile,
    table_roots,
)
from lakehouse.vacuum.inventory.stored_reports import parse_manifest
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.support.vacuum_facts import table_files

NOW = 1_795_000_000_000
HOUR, DAY = 3_600_000, 86_400_000
WEEK = 7 * DAY
FOLDER = "reports/lake/daily/data"
CSV = "Bucket, Key, VersionId, IsLatest, IsDeleteMarker, Size, LastModifiedDate, ETag, StorageClass, IntelligentTieringAccessTier"


def manifest(**changed: Any) -> dict[str, Any]:
    """As AWS writes it. Source: Amazon S3 user guide, "Locating your inventory list"."""
    return {
        "sourceBucket": "lake",
        "destinationBucket": "arn:aws:s3:::reports-bucket",
        "version": "2016-11-30",
        "creationTimestamp": str(NOW - HOUR),
        "fileFormat": "CSV",
        "fileSchema": CSV,
        "files": [{"key": f"{FOLDER}/a.csv.gz", "size": 10, "MD5checksum": "0" * 32}],
    } | changed


def parse(document: dict[str, Any] | bytes, checksum: str | None = None, **more: Any) -> Any:
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    said = hashlib.md5(data).hexdigest() + "\n" if checksum is None else checksum
    return parse_manifest(
        data, said, name="daily/x", bucket="lake", folder=FOLDER, now_ms=NOW, **more
    )


def test_a_manifest_of_aws_is_read() -> None:
    found = parse(manifest())
    assert (found.bucket, found.name, found.created_ms) == ("lake", "daily/x", NOW - HOUR)
    names = "bucket key version_id is_latest is_delete_marker size last_modified_date e_tag"
    assert found.columns == (*names.split(), "storage_class", "intelligent_tiering_access_tier")
    assert [(file.key, file.size_bytes) for file in found.files] == [(f"{FOLDER}/a.csv.gz", 10)]


def listing(key: str) -> dict[str, Any]:
    return manifest(files=[{"key": key, "size": 1, "MD5checksum": "0" * 32}])


def created(ms: int | str) -> dict[str, Any]:
    return manifest(creationTimestamp=str(ms))


LATE = "the report's time is 60 min ahead of this machine's clock (limit 5 min)"


@pytest.mark.parametrize(
    ("document", "more", "said"),
    [
        (manifest(), {"checksum": "f" * 32}, "manifest.checksum contains"),
        (manifest(), {"checksum": ""}, "manifest.checksum contains"),
        (b"{", {}, "cannot be parsed"),
        (b"[]", {}, "cannot be parsed"),
        (manifest(sourceBucket="other"), {}, "the report lists bucket 'other'"),
        (listing("reports/lake/weekly/data/a"), {}, "is not a plain path below"),
        (listing(f"{FOLDER}/../../x"), {}, "is not a plain path below"),
        (manifest(files=[]), {}, "no data files"),
        (manifest(fileFormat="Avro"), {}, "'Avro'"),
        (created(NOW // 1000), {}, "not a plausible time in"),
        (created(NOW * 1000), {}, "not a plausible time in"),
        (created(NOW + 2 * DAY), {}, "not a plausible time in"),
        (created(NOW + HOUR), {}, LATE),
        (created("2026-11-20"), {}, "cannot be parsed"),
    ],
)
def test_a_faulty_manifest_is_refused(document: Any, more: dict[str, Any], said: str) -> None:
    with pytest.raises(Refused, match="inventory report daily/x") as refused:
        parse(document, **more)
    assert said in str(refused.value)


FOLDERS = {"a/b/x": "a/b", "a/bc/x": None, "a/b": None, "a/b/": "a/b", "a/b/c/x": "a/b"}
FOLDERS |= {"a/b/c/d/x": "a/b/c/d", "a/b/c/de/x": "a/b", "x": None}


@pytest.mark.parametrize(("name", "table"), FOLDERS.items())
def test_a_key_belongs_to_the_longest_table_folder_above_it(name: str, table: str | None) -> None:
    assert Owners(["a/b", "a/b/c/d"]).table_of(name) == table


def test_every_folder_with_a_log_is_a_table() -> None:
    names = ["a/b/_delta_log/0.json", "a/b/c/_delta_log/_sidecars/x", "d/x", "_delta_log/x"]
    assert table_roots(names) == {"a/b", "a/b/c"}


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        (None, WEEK),
        ("interval 1 week", WEEK),
        ("INTERVAL 168 HOURS", WEEK),
        ("2 days 12 hours", 2 * DAY + 12 * HOUR),
        ("interval 0 seconds", 0),
        ("interval 5184000000000 microseconds", 60 * DAY),
        ("interval 1 second 1 microsecond", 1_001),
        ("interval 1 month", None),
        ("soon", None),
        ("7", None),
    ],
)
def test_the_retention_is_the_table_s_property(text: str | None, ms: int | None) -> None:
    properties = {} if text is None else {"delta.deletedFileRetentionDuration": text}
    assert retention_ms_of(properties) == ms


LIVE_VECTOR, KEPT_VECTOR, DEAD_VECTOR = (
    f"deletion_vector_{number}1d16c75-6994-46b7-a15b-8b538852e50e.bin" for number in (1, 2, 3)
)


def stored(key: str, size: int = 1, age: int = 30 * DAY, **more: Any) -> StoredObject:
    return StoredObject(bucket="lake", key=key, size_bytes=size, modified_ms=NOW - age, **more)


def files_of(table: str = "a/t", **more: Any) -> TableFiles:
    fields: dict[str, Any] = {
        "table": table,
        "version": 3,
        "retention_ms": WEEK,
        "live": {
            "d=1/live": Reference(size_bytes=5, written_ms=NOW - DAY),
            LIVE_VECTOR: Reference(size_bytes=None, written_ms=NOW - DAY),
        },
        "removed": {
            "kept": NOW - DAY,
            "past": NOW - 8 * DAY,
            "unknown": None,
            "edge": NOW - WEEK,
            KEPT_VECTOR: NOW - DAY,
            DEAD_VECTOR: NOW - 8 * DAY,
        },
        "partition_columns": ("d", "_p"),
    }
    return table_files(**(fields | more))


ALL = (stored("a/t/d=1/live", 5), stored(f"a/t/{LIVE_VECTOR}", 3))
SHARED = "u00000000000000000002"  # a file with several vectors
UNREFERENCED = "deletion_vector_61d16c75-6994-46b7-a15b-8b538852e50e.bin"


def held(
    *objects: StoredObject,
    settled_ms: int = NOW - HOUR,
    files: Iterable[TableFiles] = (files_of(),),
    **more: Any,
) -> Reconciliation:
    fields: dict[str, Any] = {"unread": {}, "landed": (), "lake_prefix": ""}
    known = KnownTables(files=[*files], **(fields | more))
    return reconcile(known, objects, settled_ms=settled_ms, now_ms=NOW)


@pytest.mark.parametrize(
    ("each", "part"),
    [
        (stored("a/t/d=1/live", 5), Part.LIVE),
        (stored("a/t/d=1/live", 5, is_dir=True), Part.LIVE),
        (stored(f"a/t/{LIVE_VECTOR}"), Part.VECTORS_LIVE),
        (stored("a/t/kept"), Part.TOMBSTONED_KEPT),
        (stored("a/t/edge"), Part.TOMBSTONED_KEPT),
        (stored("a/t/unknown"), Part.TOMBSTONED_KEPT),
        (stored("a/t/past"), Part.TOMBSTONED_PAST),
        (stored(f"a/t/{KEPT_VECTOR}"), Part.VECTORS_KEPT),
        (stored(f"a/t/{DEAD_VECTOR}"), Part.VECTORS_DEAD),
        (stored(f"a/t/{UNREFERENCED}"), Part.VECTORS_DEAD),
        (stored(f"a/t/ab/{UNREFERENCED}", age=DAY), Part.ORPHANED_YOUNG),
        (stored("a/t/d=1/x"), Part.ORPHANED_OLD),
        (stored("a/t/d=1/x", age=DAY), Part.ORPHANED_YOUNG),
        (stored("a/t/d=1/x", age=WEEK), Part.ORPHANED_YOUNG),
        (replace(stored("a/t/x"), modified_ms=None), Part.ORPHANED_YOUNG),
        (stored("a/t/_p=1/x"), Part.ORPHANED_OLD),
        (stored("a/t/_delta_index/x"), Part.HIDDEN),
        (stored("a/t/metadata/v1.metadata.json"), Part.HIDDEN),
        (stored("a/t/d=1/metadata/x"), Part.ORPHANED_OLD),
        (stored("a/t/_change_data/cdc-0"), Part.CHANGE_DATA_PAST),
        (stored("a/t/_change_data/cdc-0", age=DAY), Part.CHANGE_DATA),
        (stored("a/t/_delta_log/00000000000000000001.json"), Part.LOG),
        (stored("a/t/_delta_log/_sidecars/x.parquet"), Part.LOG),
        (stored("a/t/d=1/_SUCCESS"), Part.HIDDEN),
        (stored("a/t/d=1/.live.crc"), Part.HIDDEN),
        (stored("a/t/.x/y"), Part.HIDDEN),
        (stored("a/t/d=1/", 0, is_dir=True), Part.FOLDERS),
        (stored("a/t/d=1/live", 9, is_latest=False), Part.NONCURRENT),
        (stored("a/t/d=1/live", 0, is_latest=True, is_delete_marker=True), Part.DELETE_MARKERS),
        (stored("a/t/d=1/live", 0, is_latest=False, is_delete_marker=True), Part.DELETE_MARKERS),
    ],
)
def test_every_object_is_told_apart(each: StoredObject, part: Part) -> None:
    [share] = only(held(each)).shares
    assert (share.part, share.file_count, share.size_bytes) == (part, 1, each.size_bytes)


def only(found: Reconciliation) -> TableShares:
    [table] = found.tables
    return table


def test_a_live_file_that_is_not_in_storage_is_missing() -> None:
    assert only(held(*ALL)).missing == ()
    assert only(held()).missing == ("d=1/live", LIVE_VECTOR)
    hidden_by_versions = (
        stored("a/t/d=1/live", 5, is_latest=False),
        stored("a/t/d=1/live", 0, is_latest=True, is_delete_marker=True),
    )
    assert only(held(ALL[1], *hidden_by_versions)).missing == ("d=1/live",)


def test_a_live_file_younger_than_the_report_is_not_missing() -> None:
    assert only(held(settled_ms=NOW - DAY)).missing == ()


def test_a_live_file_of_another_size_is_told() -> None:
    assert only(held(stored("a/t/d=1/live", 6), ALL[1])).resized == ("d=1/live",)


@pytest.mark.parametrize(
    ("more", "archived"),
    [
        ({"storage_class": "DEEP_ARCHIVE"}, True),
        ({"storage_class": "INTELLIGENT_TIERING", "archive_tier": "ARCHIVE"}, True),
        ({"storage_class": "INTELLIGENT_TIERING", "archive_tier": "DEEP_ARCHIVE"}, True),
        ({"storage_class": "INTELLIGENT_TIERING", "archive_tier": "ARCHIVE_INSTANT"}, False),
        ({"storage_class": "GLACIER_IR"}, False),
        ({}, False),
    ],
)
def test_only_live_files_in_an_archive_are_found(more: dict[str, Any], archived: bool) -> None:
    dead = stored("a/t/kept", storage_class="GLACIER")
    found = only(held(stored("a/t/d=1/live", 5, **more), ALL[1], dead))
    assert found.archived == (("d=1/live",) if archived else ())


def test_without_a_known_retention_nothing_is_past_it() -> None:
    unknown = files_of(retention_ms=None)
    found = only(held(stored("a/t/past"), stored("a/t/x"), files=[unknown]))
    assert [share.part for share in found.shares] == [Part.TOMBSTONED_KEPT, Part.ORPHANED_YOUNG]


def test_files_that_a_shallow_clone_reads_are_lent_and_missed_by_the_clone() -> None:
    reference = Reference(size_bytes=1, written_ms=NOW - DAY)
    borrowed = {"a/t/past": reference, "a/t/gone": reference}
    clone = files_of("a/clone", live={}, removed={}, elsewhere=borrowed)
    objects = (*ALL, stored("lake/a/t/past"), stored("a/t/past"))
    cloned, lender = held(*objects, settled_ms=NOW, files=[files_of(), clone]).tables
    assert cloned.missing == ("a/t/gone",)
    assert [share.part for share in lender.shares] == [Part.LIVE, Part.LENT, Part.VECTORS_LIVE]


def test_what_belongs_to_no_table_is_listed_by_its_folder() -> None:
    landed = stored("landing/a", 7), stored("landing/b/c", 8)
    found = held(*ALL, *landed, stored("readme", 1), stored("a/tt/x", 2))
    assert [(share.folder, share.file_count, share.size_bytes) for share in found.unclaimed] == [
        ("a/tt/", 1, 2),
        ("landing/", 1, 7),
        ("landing/b/", 1, 8),
        ("readme", 1, 1),
    ]


def test_the_files_of_an_archive_are_a_part_of_their_table_and_never_orphans() -> None:
    """Not even next to a file of the table that has the same name, whatever their age."""
    found = held(
        *ALL,
        stored("archive/a/t/d=1/past", 7, storage_class="GLACIER_IR"),
        stored("archive/a/t/d=1/live", 8),
        stored("archive/a/t/d=1/live", 9, is_latest=False),
        stored("archive/a/gone/d=1/x", 2),
        stored("archive/a/t", 3),
        lake_prefix="",
    )
    shares = [(each.part, each.storage_class, each.size_bytes) for each in only(found).shares]
    archived = [(Part.ARCHIVED, None, 8), (Part.ARCHIVED, "GLACIER_IR", 7)]
    of_archive = [each for each in shares if each[0] in (Part.ARCHIVED, Part.NONCURRENT)]
    assert of_archive == [*archived, (Part.NONCURRENT, None, 9)]
    [share] = found.unclaimed
    assert (share.folder, share.size_bytes) == ("archive/a/", 2 + 3)


def test_a_table_whose_log_cannot_be_read_has_no_orphans() -> None:
    found = held(*ALL, stored("a/u/x", 4), unread={"a/u": "why"})
    assert found.tables[1].problem == "why"
    [share] = found.tables[1].shares
    assert (share.part, share.size_bytes) == (Part.UNREAD, 4)
    assert found.unclaimed == ()


def test_small_files_are_seen_where_no_log_is_read() -> None:
    small = [stored("a/u/x", 4), stored("a/u/d=1/y", 12 << 20), stored("a/u/_delta_log/0.json", 4)]
    small += [stored("a/u/.z"), stored("a/u/d/", 0, is_dir=True)]
    found = held(*ALL, *small, stored("plain/t/x"), stored("_hidden/x"), unread={"a/u": "why"})
    assert [share.small_count for table in found.tables for share in table.shares] == [0, 0, 1]
    folders = {share.folder: share.small_count for share in found.unclaimed}
    assert folders == {"_hidden/": 0, "plain/t/": 1}


def test_storage_classes_are_kept_apart() -> None:
    live = stored("a/t/d=1/live", 5, storage_class="STANDARD")
    found = only(held(ALL[1], live, stored("a/t/x", 2, storage_class="GLACIER")))
    shares = [(share.part, share.storage_class) for share in found.shares]
    files = [(Part.LIVE, "STANDARD"), (Part.ORPHANED_OLD, "GLACIER")]
    assert shares == [*files, (Part.VECTORS_LIVE, None)]


def test_the_books_of_a_layout() -> None:
    plain = DataFile(path="d=a%2520b/x", size_bytes=5, modified_ms=1)
    snapshot = Snapshot(
        table="a/t",
        uri="s3a://bucket/lake/a/t",
        version=7,
        committed_ms=NOW,
        files=(
            replace(plain, deletion_vector="u00000000000000000001@1"),
            DataFile(path="s3://bucket/lake/a/t/y%20z", size_bytes=6, modified_ms=2),
            DataFile(path="s3a://bucket/lake/a/source/z", size_bytes=7, modified_ms=3),
            DataFile(path="s3a://elsewhere/z", size_bytes=8, modified_ms=4),
        ),
        tombstones=(
            Tombstone(path="old%3D1", deleted_ms=9),
            Tombstone(path="s3://bucket/lake/a/t/old%3D1", deleted_ms=8),
            Tombstone(path="s3a://bucket/lake/a/source/gone"),
        ),
        removed_vectors={
            "iinline": 1,
            f"{SHARED}@1": 7,
            f"{SHARED}@99": 5,
            "u00000000000000000003@1": 5,
            "u00000000000000000003@2": None,
        },
        log=LogTail(checkpoint_version=None, commit_count=1, commit_bytes=1),
    )
    newest = StoredFile(name="7.json", size_bytes=1, modified_ms=NOW)
    history = Commits(table="a/t", commits=())
    facts = TableFacts(snapshot=snapshot, history=history, newest=newest)

    def resolve(uri: str) -> str | None:
        return name_below(uri, "s3a://bucket/lake")

    found = fold_table_files(facts, resolve=resolve, now_ms=NOW)
    assert found.live == {
        "d=a%20b/x": Reference(size_bytes=5, written_ms=1),
        "y z": Reference(size_bytes=6, written_ms=2),
        vector_path("u00000000000000000001"): Reference(size_bytes=None, written_ms=NOW),
    }
    assert found.elsewhere == {"a/source/z": Reference(size_bytes=7, written_ms=3)}
    assert found.outside == ("s3a://elsewhere/z",)
    assert found.retention_ms == WEEK
    assert found.removed == {
        "old=1": 9,
        vector_path(SHARED): 7,
        vector_path("u00000000000000000003"): None,
    }


FILES = ["d=1/live", "kept", "past", "x", "d=1/y", "_delta_log/00000000000000000001.json"]
FILES += ["_change_data/c", ".z", "d=1/", DEAD_VECTOR, "n/x"]
PLACES = st.sampled_from(["a/t/", "a/t/n/", "a/tt/", "a/bad/", "landing/", "", "other/"])
OBJECTS = st.builds(
    StoredObject,
    bucket=st.just("lake"),
    key=st.builds("{}{}".format, PLACES, st.sampled_from(FILES)),
    size_bytes=st.integers(0, 10**15),
    modified_ms=st.none() | st.integers(NOW - 30 * DAY, NOW),
    is_dir=st.booleans(),
    storage_class=st.sampled_from([None, "STANDARD", "GLACIER"]),
    is_latest=st.none() | st.booleans(),
    is_delete_marker=st.none() | st.booleans(),
)


def test_a_checkpoint_without_tombstones_hides_no_vector_that_earlier_commits_removed() -> None:
    builder = LogBuilder().create(reader_features=["deletionVectors"]).append([("a", 5)])
    builder.delete_rows({"a": 1}).delete_rows({"a": 2})
    before = builder.facts()
    after = builder.checkpoint(tombstones=False).facts()
    removed, removed_after = (
        fold_table_files(facts, resolve=lambda _: None, now_ms=NOW).removed
        for facts in (before, after)
    )
    assert (
        removed.keys() == removed_after.keys() and len(removed) == 2
    )  # one is the path of the live file
    assert after.snapshot.tombstones == ()


@given(st.lists(OBJECTS, max_size=30))
def test_the_parts_sum_to_the_inventory_s_total(objects: list[StoredObject]) -> None:
    tables = files_of(), files_of("a/t/n")
    found = held(*objects, settled_ms=NOW, files=tables, unread={"a/bad": "why"})
    assert found.file_count == len(objects)
    assert found.size_bytes == sum(each.size_bytes for each in objects)
