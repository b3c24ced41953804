"""Stories of logs, each with what the reader must make of it; real tables are in long/test_log_reader_spark.py."""

import json
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any
from uuid import UUID

import boto3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse.base.errors import Broken, Refused, Transient
from lakehouse.base.paths import name_below, vector_path
from lakehouse.delta.log import read_facts
from lakehouse.delta.log.read_log import unreadable_files
from lakehouse.delta.snapshot import Column, DataFile, LogTail, Tombstone
from lakehouse.store import DiskStore, S3Store, StoredFile
from lakehouse.vacuum.inventory.plan import fold_table_files, is_data_file
from lakehouse_tests.log_builder import MINUTE_MS, START_MS, LogBuilder, add_of, vector_of
from lakehouse_tests.memory_store import MemoryStore

V2 = {"uuid": "3a0d65cd-4056-49b8-937b-95f9e3ee90e5"}
CHECKPOINTS = {
    "none": None,
    "classic": {},
    "only json statistics": {"stats": "json"},
    "only parsed statistics": {"stats": "struct"},
    "three parts": {"parts": 3},
    "V2 with sidecars": {**V2, "sidecars": 2},
    "V2 without sidecars": V2,
    "V2 in json with sidecars": {**V2, "sidecars": 2, "json_file": True},
    "V2 in json without sidecars": {**V2, "json_file": True},
    "V2 under a classic name": {"sidecars": 1},
}
WRITTEN = [kind for kind in CHECKPOINTS.values() if kind is not None]


def paths(story: LogBuilder) -> list[str]:
    return sorted(file.path for file in story.snapshot().files)


def compacted(story: LogBuilder, **options: Any) -> dict[str, bool]:
    """Whether a compaction wrote each live file."""
    return {file.path: file.compacted for file in story.facts(**options).snapshot.files}


def versions(story: LogBuilder, **options: Any) -> list[int]:
    """The commits in the history."""
    return [commit.version for commit in story.facts(**options).history.commits]


def test_no_log_or_an_empty_one_is_no_table(tmp_path: Path) -> None:
    store = MemoryStore()
    assert read_facts(store, "bronze/t", uri="/lake/bronze/t") is None
    store.put("bronze/t/data.parquet", b"")
    store.put("bronze/t2/_delta_log/00000000000000000000.json", b"")
    assert read_facts(store, "bronze/t", uri="/lake/bronze/t") is None
    (tmp_path / "bronze/t/_delta_log/_staged_commits").mkdir(parents=True)
    assert read_facts(DiskStore(tmp_path), "bronze/t", uri="x") is None


def test_a_created_table_has_no_files() -> None:
    story = LogBuilder().create(
        columns={"id": "long", "day": "date"},
        partition_by=["day"],
        properties={"delta.appendOnly": "false"},
    )
    snapshot = story.snapshot()
    assert (snapshot.table, snapshot.uri, snapshot.version) == ("bronze/t", "/lake/bronze/t", 0)
    assert snapshot.committed_ms == START_MS
    assert (snapshot.files, snapshot.tombstones, snapshot.partition_columns) == ((), (), ("day",))
    assert snapshot.properties == {"delta.appendOnly": "false"}
    assert snapshot.features == {"appendOnly", "invariants"}
    assert snapshot.columns == (Column(name="id", type="bigint"), Column(name="day", type="date"))
    assert snapshot.row_count == 0


@pytest.mark.parametrize("checkpoint", CHECKPOINTS.values(), ids=CHECKPOINTS)
def test_all_checkpoints_fold_to_the_same_layout(checkpoint: dict[str, Any] | None) -> None:
    story = LogBuilder().create(partition_by=["d"])
    story.append(
        [("d=1/a", 10), ("d=1/b", 20, None), ("d=__HIVE_DEFAULT_PARTITION__/n", 7)],
        transaction=("app", 4),
    )
    story.delete_rows({"d=1/a": 3}).delete(["d=1/b"]).append([("d=1/e", 6, None)])
    if checkpoint is not None:
        story.checkpoint(**checkpoint).forget_before(6)
    story.append([("d=2/c", 5)])
    snapshot = story.snapshot()

    def file(path: str, size: int, minute: int, part: str | None, rows: int | None) -> DataFile:
        made = DataFile(path=path, size_bytes=size, modified_ms=START_MS + minute * MINUTE_MS)
        return replace(made, partition=(("d", part),), row_count=rows)

    vector = {"deletion_vector": "u00000000000000000001@1", "deleted_row_count": 3}
    assert sorted(snapshot.files, key=attrgetter("path")) == [
        replace(file("d=1/a", 10, 1, "1", 10), **vector),  # type: ignore[arg-type]
        file("d=1/e", 6, 4, "1", None),
        file("d=2/c", 5, 5, "2", 5),
        file("d=__HIVE_DEFAULT_PARTITION__/n", 7, 1, None, 7),
    ]
    assert snapshot.tombstones == (
        Tombstone(path="d=1/b", deleted_ms=START_MS + 3 * MINUTE_MS, size_bytes=20),
    )
    assert (snapshot.version, snapshot.transactions) == (5, {"app": 4})
    assert snapshot.partition_columns == ("d",)


STEPS = st.tuples(st.sampled_from("awdorc"), st.integers(0, 2**16))


@given(st.lists(STEPS, max_size=25), st.data())
def test_checkpoints_change_no_snapshot(steps: list[tuple[str, int]], data: st.DataObject) -> None:
    plain = LogBuilder().create(partition_by=["d"])
    checkpointed = LogBuilder().create(partition_by=["d"])
    for number, (step, seed) in enumerate(steps):
        live = sorted(file.path for file in plain.snapshot().files)
        chosen = live[seed % 3 :: 2]
        for story in (plain, checkpointed):
            match step:
                case "a":
                    name, parts = f"d={seed % 3}/f{number}", range(1 + seed % 3)
                    added = [(f"{name}-{part}", seed + part) for part in parts]
                    story.append(added, transaction=("app", number))
                case "w":
                    story.overwrite([(f"d=0/w{number}", seed)])
                case "d":
                    story.delete(chosen)
                case "o":
                    story.optimize(chosen, into=[(f"d={seed % 3}/o{number}", seed)])
                case "r":
                    story.delete_rows(dict.fromkeys(chosen, seed % 7))
                case _:
                    story.readd(chosen)
        if data.draw(st.booleans()):
            checkpointed.checkpoint(**data.draw(st.sampled_from(WRITTEN)))
    one, other = plain.facts(), checkpointed.facts()
    assert one.history == other.history
    assert set(one.snapshot.files) == set(other.snapshot.files)
    assert set(one.snapshot.tombstones) == set(other.snapshot.tombstones)
    log = LogTail(checkpoint_version=None, commit_count=0, commit_bytes=0)
    unordered = {"files": (), "tombstones": (), "log": log}
    assert replace(one.snapshot, **unordered) == replace(other.snapshot, **unordered)  # type: ignore[arg-type]


def test_a_checkpoint_without_statistics_leaves_rows_unknown() -> None:
    story = LogBuilder().create().append([("a", 10)]).checkpoint(stats="none").forget_before(2)
    (file,) = story.snapshot().files
    assert file.row_count is None
    assert story.snapshot().row_count is None


def test_log_debt_is_what_lies_after_the_newest_checkpoint() -> None:
    story = LogBuilder().create().append([("a", 1)])
    assert story.snapshot().log.checkpoint_version is None
    assert story.snapshot().log.commit_count == 2
    story.checkpoint().append([("b", 1)]).checkpoint().append([("c", 1)]).append([("d", 1)])
    size = sum(len(story.store.read(story.commit_name(version))) for version in (3, 4))
    assert story.snapshot().log == LogTail(checkpoint_version=2, commit_count=2, commit_bytes=size)


def test_an_unfinished_multi_part_checkpoint_is_passed_over() -> None:
    """Also with as many parts as it is to have, of which one has a wrong number."""
    story = LogBuilder().create().append([("a", 1)]).checkpoint().append([("b", 1)])
    story.checkpoint(parts=2)
    name = "bronze/t/_delta_log/00000000000000000002.checkpoint.000000000{}.0000000002.parquet"
    last = story.store.read(name.format(2))
    story.store.delete([name.format(2)])
    assert (story.snapshot().log.checkpoint_version, paths(story)) == (1, ["a", "b"])
    story.store.put(name.format(3), last)
    assert (story.snapshot().log.checkpoint_version, paths(story)) == (1, ["a", "b"])


def test_a_damaged_hint_and_other_files_in_the_log_folder_change_nothing() -> None:
    story = LogBuilder().create().append([("a", 1)]).checkpoint()
    story.store.put("bronze/t/_delta_log/_last_checkpoint", b"{")
    nine = f"{9:020}"
    for name in (
        *(f".{nine}.json.crc", f"{nine}.crc", f"{0:020}.{nine}.compacted.json"),
        *(f"_staged_commits/{nine}.{V2['uuid']}.json", "_last_vacuum_info"),
        *(f"_commits/{nine}.json", f"{nine}.json.tmp", f".tmp/{nine}.json"),
    ):
        story.store.put(f"bronze/t/_delta_log/{name}", b"not a commit")
    assert (story.snapshot().version, story.snapshot().log.checkpoint_version) == (1, 1)
    assert paths(story) == ["a"]


def test_a_file_with_a_new_deletion_vector_stays_and_leaves_no_tombstone() -> None:
    story = LogBuilder().create().append([("b", 10), ("a", 10)])
    snapshot = story.delete_rows({"a": 2}).delete_rows({"a": 5}).snapshot()
    assert snapshot.files[0].deletion_vector == "u00000000000000000002@1"
    assert snapshot.files[0].deleted_row_count == 5
    assert ([file.path for file in snapshot.files], snapshot.tombstones) == (["a", "b"], ())
    assert snapshot.row_count == 15


def test_a_time_of_removal_that_is_unknown_once_is_unknown() -> None:
    story = LogBuilder().create().append([("a", 10)]).delete(["a"]).checkpoint().append([("a", 10)])
    story.commit("DELETE", {"remove": {"path": "a", "dataChange": True, "size": 10}})
    assert story.snapshot().tombstones == (Tombstone(path="a", deleted_ms=None, size_bytes=10),)


def test_a_file_that_goes_with_its_vectors_is_one_tombstone() -> None:
    story = LogBuilder().create().append([("a", 10)]).delete_rows({"a": 2}).delete_rows({"a": 5})
    story.delete(["a"])
    stone = Tombstone(path="a", deleted_ms=START_MS + 4 * MINUTE_MS, size_bytes=10)
    assert story.snapshot().tombstones == (stone,)
    assert story.checkpoint(parts=2).snapshot().tombstones == (stone,)
    assert story.snapshot().tombstone_bytes == 10


def test_a_file_that_was_restored_is_live_again_and_no_tombstone() -> None:
    story = LogBuilder().create().append([("a", 10), ("b", 4)]).overwrite([("c", 3)]).checkpoint()
    story.append([("a", 10)])
    assert (paths(story), story.snapshot().tombstone_bytes) == (["a", "c"], 4)
    assert [stone.path for stone in story.snapshot().tombstones] == ["b"]


def test_a_remove_without_size_or_time_is_a_tombstone_of_unknown_size_and_time() -> None:
    story = LogBuilder().create().append([("a", 10)])
    story.commit("DELETE", {"remove": {"path": "a", "dataChange": True}})
    assert story.snapshot().tombstones == (Tombstone(path="a", deleted_ms=None, size_bytes=None),)
    assert story.snapshot().tombstone_bytes == 0


def test_files_that_a_compaction_wrote_are_marked_also_below_a_checkpoint() -> None:
    story = LogBuilder().create().append([("a", 1), ("b", 2), ("c", 3)])
    story.optimize(["a", "b"], into=("ab", 3)).checkpoint()
    assert compacted(story) == compacted(story, newest_commits=1) == {"c": False, "ab": True}
    story.append([("d", 1)])
    assert compacted(story, newest_commits=1) == {"c": False, "ab": False, "d": False}


def test_compacted_files_stay_so_without_some_rows_and_no_file_added_anew_is_one() -> None:
    story = LogBuilder().create().append([("a", 1), ("b", 2), ("c", 3)])
    story.optimize(["a", "b"], into=("ab", 3)).readd(["c", "ab"])
    assert compacted(story) == {"c": False, "ab": True}
    assert compacted(story.delete_rows({"ab": 1})) == {"c": False, "ab": True}


def test_history_tells_what_each_commit_did() -> None:
    story = LogBuilder().create().append([("a", 1), ("b", 2)])
    story.optimize(["a", "b"], into=("c", 3), user_metadata="why").set_properties(x="y")
    created, appended, optimized, altered = story.facts().history.commits
    assert (created.operation, created.changed_data) == ("CREATE TABLE", False)
    assert created.committed_ms == START_MS
    assert (appended.operation, appended.changed_data) == ("WRITE", True)
    assert (appended.added_paths, appended.added_bytes) == (("a", "b"), 3)
    assert appended.parameters == {"mode": "Append", "partitionBy": "[]"}
    assert (optimized.version, optimized.changed_data, optimized.user_metadata) == (2, False, "why")
    assert (optimized.removed_paths, optimized.removed_bytes) == (("a", "b"), 3)
    assert optimized.added_paths == ("c",)
    assert (altered.changed_data, altered.committed_ms) == (False, START_MS + 3 * MINUTE_MS)


def test_history_goes_back_as_far_as_asked_or_as_the_log_holds_without_a_gap() -> None:
    story = LogBuilder().create()
    for number in range(1, 11):
        story.append([(f"f{number}", 1)])
    assert versions(story, newest_commits=4) == [7, 8, 9, 10]
    story.checkpoint().append([("last", 1)])
    assert versions(story, newest_commits=4) == [8, 9, 10, 11]
    story.lose(6)
    assert versions(story) == [7, 8, 9, 10, 11]
    assert story.snapshot().file_count == 11


def test_a_log_whose_commits_are_all_cleaned_up_is_its_checkpoint() -> None:
    story = LogBuilder().create().append([("a", 1)], transaction=("app", 9)).checkpoint()
    story.forget_before(2)
    facts = story.facts()
    assert (facts.snapshot.version, paths(story)) == (1, ["a"])
    assert facts.snapshot.transactions == {"app": 9}
    assert facts.history.commits == ()


def test_time_is_the_in_commit_timestamp_where_there_is_one() -> None:
    story = LogBuilder().create()
    info = {"inCommitTimestamp": 5, "timestamp": 6, "operation": "WRITE"}
    story.store.put(story.commit_name(1), json.dumps({"commitInfo": info}).encode())
    assert story.snapshot().committed_ms == 5
    story.store.put(story.commit_name(1), b'{"txn":{"appId":"x","version":1}}')
    (listed,) = [file for file in story.store.list("bronze/t") if file.name == story.commit_name(1)]
    assert story.snapshot().committed_ms == listed.modified_ms
    assert story.facts().history.commits[1].operation == "UNKNOWN"


def test_transactions_and_properties_are_the_newest() -> None:
    story = LogBuilder().create(properties={"a": "1"}).append([], transaction=("x", 1))
    story.append([], transaction=("y", 5)).checkpoint()
    story.append([], transaction=("x", 2)).set_properties(b="2")
    assert story.snapshot().transactions == {"x": 2, "y": 5}
    assert story.snapshot().properties == {"a": "1", "b": "2"}


def test_partitions_come_in_the_order_of_the_tables_columns_and_as_they_are_spelled() -> None:
    add = add_of("x", partitionValues={"month": "", "year": "2013"})
    story = LogBuilder().create(partition_by=["year", "month"])
    (file,) = story.commit("WRITE", add).snapshot().files
    assert file.partition == (("year", "2013"), ("month", ""))


def test_nested_types_are_spelled_as_spark_spells_them() -> None:
    shorts = {"type": "array", "elementType": "short"}
    fields = [{"name": "a", "type": "integer"}, {"name": "b", "type": shorts}]
    bytes_ = {"type": "array", "elementType": "byte"}
    columns = {
        "s": {"type": "struct", "fields": fields},
        "m": {"type": "map", "keyType": "string", "valueType": bytes_},
        "d": "decimal(10,2)",
        "t": "timestamp_ntz",
    }
    story = LogBuilder().create(columns=columns)  # type: ignore[arg-type]
    assert [column.type for column in story.snapshot().columns] == [
        "struct<a:int,b:array<smallint>>",
        "map<string,array<tinyint>>",
        "decimal(10,2)",
        "timestamp_ntz",
    ]


@pytest.mark.parametrize(
    ("stats", "expected"),
    [
        (None, None),
        ("", None),
        ('{"numRecords":12}', 12),
        ('{"numRecords":12,"minValues":{"numRecords":5}}', 12),
        ('{"minValues":{"numRecords":5},"numRecords":12}', 12),
        ('{"minValues":{"numRecords":5}}', None),
        ('{"minValues":{"x":"\\"numRecords\\":9,"},"numRecords": 12}', 12),
    ],
)
def test_row_counts_come_from_the_statistics_of_the_file_not_of_a_column(
    stats: str | None, expected: int | None
) -> None:
    (file,) = LogBuilder().create().commit("WRITE", add_of("x", stats=stats)).snapshot().files
    assert file.row_count == expected


def test_features_are_named_also_where_an_old_protocol_only_implies_them() -> None:
    story = LogBuilder().create(
        features=["clustering", "domainMetadata"], reader_features=["deletionVectors"]
    )
    assert story.snapshot().features == {"clustering", "domainMetadata", "deletionVectors"}
    story.commit("UPGRADE", {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}})
    assert "columnMapping" in story.snapshot().features
    assert "identityColumns" not in story.snapshot().features


def test_a_gap_in_the_versions_is_broken_and_named() -> None:
    story = LogBuilder().create().append([("a", 1)]).append([("b", 1)]).append([("c", 1)]).lose(2)
    told = r"log of bronze/t: it reaches version 3 and has no complete checkpoint, but lacks the commit of version 2"
    with pytest.raises(Broken, match=told):
        story.facts()
    with pytest.raises(Broken, match="lacks the commit of version 0"):
        LogBuilder().create().append([("a", 1)]).lose(0).facts()
    story.checkpoint().append([("d", 1)]).append([("e", 1)]).lose(4)
    message = r"version 5 after its checkpoint of version 3, but lacks the commit of version 4"
    with pytest.raises(Broken, match=message):
        story.facts()


def test_a_name_that_claims_any_version_is_a_gap_and_not_endless_work() -> None:
    story = LogBuilder().create().append([("a", 1)])
    story.store.put(story.commit_name(10**20 - 1), b"{}")
    told = (
        r"reaches version 9{20} and has no complete checkpoint, but lacks the commit of version 2"
    )
    with pytest.raises(Broken, match=told):
        story.facts()


def test_a_log_of_which_only_the_hint_is_left_is_broken_and_not_taken_for_no_table() -> None:
    store = MemoryStore()
    store.put("bronze/t/_delta_log/_last_checkpoint", b'{"version":10}')
    with pytest.raises(Broken, match="neither a complete checkpoint nor commits"):
        read_facts(store, "bronze/t", uri="x")


CORRUPT = ["[]", "7", "\x00", '{"add":7}', '{"commitInfo":7}']
CORRUPT += ['{"add":{"path":"x"}}', '{"txn":{"appId":"x"}}']


@pytest.mark.parametrize("line", CORRUPT)
def test_a_corrupt_line_is_broken_with_file_and_line(line: str) -> None:
    story = LogBuilder().create().append([("a", 1)])
    good = story.store.read(story.commit_name(1))
    story.store.put(story.commit_name(1), good + b"\n\n" + line.encode())
    message = r"_delta_log/00000000000000000001\.json, line 4 is not a Delta action"
    with pytest.raises(Broken, match=message):
        story.facts()


def test_an_empty_commit_is_broken() -> None:
    story = LogBuilder().create()
    story.store.put(story.commit_name(1), b"\n")
    with pytest.raises(Broken, match=r"00000000000000000001\.json is empty"):
        story.facts()


def test_a_log_without_protocol_or_metadata_is_broken() -> None:
    protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
    with pytest.raises(Broken, match="it has no protocol"):
        LogBuilder().commit("WRITE").facts()
    with pytest.raises(Broken, match="it has no metaData"):
        LogBuilder().commit("WRITE", {"protocol": protocol}).facts()


REDIRECT = "redirectReaderWriter-preview"
UNSUPPORTED = "this program does not support"
OF_A_CATALOG = "table feature {} is not supported, since only a catalog"


@pytest.mark.parametrize(
    ("reader", "writer", "features", "named"),
    [
        (3, 7, ["deletionVectors", "fromTheFuture"], f"{UNSUPPORTED} table feature fromTheFuture"),
        (4, 8, [], f"{UNSUPPORTED} reader version 4"),
        (3, 7, ["catalogManaged"], OF_A_CATALOG.format("catalogManaged")),
        (1, 7, ["coordinatedCommits-preview"], OF_A_CATALOG.format("coordinatedCommits-preview")),
        (3, 7, [REDIRECT], f"{UNSUPPORTED} table feature {REDIRECT}"),
    ],
)
def test_what_cannot_be_counted_is_refused_by_name(
    reader: int, writer: int, features: list[str], named: str
) -> None:
    protocol: dict[str, Any] = {"minReaderVersion": reader, "minWriterVersion": writer}
    if reader == 3:
        protocol |= {"readerFeatures": features, "writerFeatures": []}
    elif features:
        protocol["writerFeatures"] = features
    with pytest.raises(Refused, match=f"log of bronze/t: {named}"):
        LogBuilder().create().commit("UPGRADE", {"protocol": protocol}).facts()


@pytest.mark.parametrize("checkpoint", WRITTEN)
@pytest.mark.parametrize("by", [[], ["b"], ["a", "b"]])
def test_a_table_that_was_overwritten_with_another_partitioning_is_read_before_its_next_checkpoint(
    by: list[str], checkpoint: dict[str, Any]
) -> None:
    """The checkpoint holds files of the old partitioning, all of them removed since."""
    columns = {"id": "long", "a": "string", "b": "string"}
    story = LogBuilder().create(columns=columns, partition_by=["a"])
    story.append([("a=1/x", 10), ("a=2/y", 10)]).checkpoint(**checkpoint)
    described = LogBuilder().create(columns=columns, partition_by=by)
    metadata = json.loads(described.store.read(described.commit_name(0)).splitlines()[2])
    removed = {"deletionTimestamp": 1, "dataChange": True}
    removes = [{"remove": {"path": path, **removed}} for path in ("a=1/x", "a=2/y")]
    values = dict.fromkeys(by, "3")
    add = add_of("z", partitionValues=values)
    snapshot = story.commit("WRITE", metadata, *removes, add).snapshot()
    [file] = snapshot.files
    assert (file.path, file.partition) == ("z", tuple(values.items()))
    assert {stone.path for stone in snapshot.tombstones} == {"a=1/x", "a=2/y"}
    with pytest.raises(Refused, match="a file is partitioned by c, the table by"):
        story.commit("WRITE", add_of("z", partitionValues={"c": "1"})).facts()


@pytest.mark.parametrize("checkpoint", CHECKPOINTS.values(), ids=CHECKPOINTS)
@pytest.mark.parametrize("mapped", [False, True])
def test_a_partition_value_that_is_missing_is_null_and_an_empty_one_is_not(
    checkpoint: dict[str, Any] | None, mapped: bool
) -> None:
    """delta-io/delta-rs#4528: writers left out the keys of columns whose value is null."""
    prefix = "col-" if mapped else ""
    mapping = "delta.columnMapping.physicalName"
    fields = [
        {"name": name, "type": "string", "nullable": True, "metadata": {mapping: prefix + name}}
        for name in ("id", "a", "b")
    ]
    story = LogBuilder().create(partition_by=["a", "b"])
    metadata = story._metadata(fields, {"delta.columnMapping.mode": "name"} if mapped else {})
    values = [{"a": "0", "b": "x"}, {"b": "x"}, {"a": "1"}, {}, {"a": None, "b": ""}]
    adds = [
        add_of(str(number), partitionValues={prefix + name: each for name, each in given.items()})
        for number, given in enumerate(values)
    ]
    story.commit("WRITE", metadata, *adds)
    if checkpoint is not None:
        story.checkpoint(**checkpoint).forget_before(2)
    files = story.snapshot().files
    found = {file.path: tuple(value for _, value in file.partition) for file in files}
    expected = [("0", "x"), (None, "x"), ("1", None), (None, None), (None, "")]
    assert found == {str(number): each for number, each in enumerate(expected)}


def test_a_sidecar_outside_the_log_is_refused() -> None:
    story = LogBuilder().create()
    story.checkpoint(**V2, json_file=True)
    name = f"bronze/t/_delta_log/{0:020}.checkpoint.{V2['uuid']}.json"
    line = b'\n{"sidecar":{"path":"s3://elsewhere/x.parquet","sizeInBytes":1,"modificationTime":1}}'
    story.store.put(name, story.store.read(name) + line)
    with pytest.raises(Refused, match=r"s3://elsewhere/x\.parquet"):
        story.facts()


def test_a_table_is_read_as_it_was_at_a_version() -> None:
    story = LogBuilder().create().append([("a", 1)]).checkpoint().optimize(["a"], into=("b", 1))
    story.append([("c", 1)]).checkpoint()
    for version, expected in ((0, []), (1, ["a"]), (2, ["b"]), (3, ["b", "c"])):
        facts = read_facts(story.store, "bronze/t", uri="x", version=version)
        assert facts is not None
        assert [file.path for file in facts.snapshot.files] == expected
        assert facts.snapshot.version == version
        assert [commit.version for commit in facts.history.commits] == [*range(version + 1)]


def test_a_version_that_the_log_does_not_reach_is_refused() -> None:
    story = LogBuilder().create().append([("a", 1)]).append([("b", 1)]).checkpoint()
    with pytest.raises(Refused, match="it reaches only version 2, so version 9 cannot be read"):
        read_facts(story.store, "bronze/t", uri="x", version=9)
    story.forget_before(1)
    message = r"reaches version 1 and has no complete checkpoint, .* so version 1 cannot be read"
    with pytest.raises(Refused, match=message):
        read_facts(story.store, "bronze/t", uri="x", version=1)


class CleaningStore(MemoryStore):
    """A store in which a cleanup takes the oldest commits between a listing and the reads that follow, some times over."""

    cleanups = listings = 0

    def list(self, prefix: str) -> list[StoredFile]:
        listing = super().list(prefix)
        self.listings += 1
        if self.cleanups:
            self.cleanups -= 1
            oldest = next(file.name for file in listing if file.name.endswith(".json"))
            self.delete([oldest])
        return listing


def test_a_log_that_is_cleaned_up_while_it_is_read_is_listed_again() -> None:
    story = LogBuilder(store := CleaningStore()).create()
    for number in range(20):
        story.append([(f"f{number}", 1)])
    story.checkpoint().append([("last", 1)])
    store.cleanups = 3
    assert (story.snapshot().file_count, store.listings) == (21, 4)
    store.cleanups = 99
    with pytest.raises(Transient, match="log of bronze/t: it changed 5 times while it was read"):
        story.facts()


def test_a_commit_that_a_listing_missed_is_found_by_the_next() -> None:
    class Blinking(MemoryStore):
        blind = True

        def list(self, prefix: str) -> list[StoredFile]:
            missed = f"{1:020}.json" if self.blind else "none"
            self.blind = False
            return [file for file in super().list(prefix) if not file.name.endswith(missed)]

    story = LogBuilder(Blinking()).create().append([("a", 1)]).append([("b", 1)])
    assert story.snapshot().file_count == 2


def test_missing_files_are_the_live_ones_that_storage_lacks() -> None:
    story = LogBuilder().create(partition_by=["d"])
    story.append([("d=a%20b/x%2525", 3), ("d=1/y", 4), ("d=1/gone", 5)]).store_data()
    story.delete(["d=1/gone"])
    assert unreadable_files(story.store, story.snapshot())[0] == []
    story.store.delete(["bronze/t/d=1/gone"])
    assert unreadable_files(story.store, story.snapshot())[0] == []
    story.store.delete(["bronze/t/d=a b/x%25"])
    assert unreadable_files(story.store, story.snapshot())[0] == ["d=a b/x%25"]


def test_live_files_in_an_archive_are_known_by_the_listing(bucket: str) -> None:
    store = S3Store(bucket, "some/lake")
    story = LogBuilder(store).create().append([("a", 1), ("b", 1), ("c", 1), ("old", 1)])
    story.store_data().delete(["old"])
    client = boto3.client("s3")
    for name, storage_class in {"a": "GLACIER", "b": "DEEP_ARCHIVE", "c": "GLACIER_IR", "old": "GLACIER"}.items():  # fmt: skip
        key = f"some/lake/bronze/t/{name}"
        client.put_object(Bucket=bucket, Key=key, Body=b"x", StorageClass=storage_class)
    assert unreadable_files(store, story.snapshot()) == ([], ["a", "b"])


@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_vector_that_came_back_is_not_among_the_removed(checkpointed: bool) -> None:
    builder = LogBuilder().create(reader_features=["deletionVectors"]).append([("a", 5)])
    builder.delete_rows({"a": 1})
    [first] = builder.snapshot().files
    builder.delete_rows({"a": 2})
    [second] = builder.snapshot().files
    assert list(builder.snapshot().removed_vectors) == [first.deletion_vector]
    if checkpointed:
        builder.checkpoint()
    old, new = (vector_of(f"{number:020}", number) for number in (1, 2))
    remove = {"path": "a", "deletionTimestamp": 9, "dataChange": True, "deletionVector": new}
    builder.commit("RESTORE", {"remove": remove}, add_of("a", deletionVector=old))
    snapshot = builder.snapshot()
    assert [file.deletion_vector for file in snapshot.files] == [first.deletion_vector]
    assert snapshot.removed_vectors == {second.deletion_vector: 9}


def test_a_missing_deletion_vector_is_named() -> None:
    story = LogBuilder().create().append([("a", 10)]).store_data().delete_rows({"a": 1})
    name = vector_path("u00000000000000000001@1")
    assert unreadable_files(story.store, story.snapshot())[0] == [name]
    story.store.put(f"bronze/t/{name}", b"")
    assert unreadable_files(story.store, story.snapshot())[0] == []


@pytest.mark.parametrize(
    "path", ["file:///lake/bronze/t/a%20b/v%2525.bin", "/lake/bronze/t/a%20b/v%2525.bin"]
)
def test_a_vector_with_a_path_of_its_own_is_looked_for_under_its_decoded_name(path: str) -> None:
    story = LogBuilder().create()
    story.commit("DELETE", add_of("a", deletionVector=vector_of(path, storage="p"))).store_data()
    live = fold_table_files(
        story.facts(), resolve=lambda uri: name_below(uri, "/lake"), now_ms=0
    ).live
    assert live.keys() == {"a", "a b/v%25.bin"}
    assert unreadable_files(story.store, story.snapshot())[0] == ["a b/v%25.bin"]
    story.store.put("bronze/t/a b/v%25.bin", b"")
    assert unreadable_files(story.store, story.snapshot())[0] == []


EXAMPLE = "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"


@pytest.mark.parametrize(
    ("vector", "expected"),
    [
        # Source: PROTOCOL.md, "JSON Example 1 — On Disk with Relative Path (with Random Prefix)".
        ("uab^-aqEH.-t@S}K{vb[*k^@4", f"ab/{EXAMPLE}"),
        ("u^-aqEH.-t@S}K{vb[*k^", EXAMPLE),
        ("u00000000000000000000@12", f"deletion_vector_{UUID(int=0)}.bin"),
        ("ps3://b/t/deletion_vector_x.bin@4", "s3://b/t/deletion_vector_x.bin"),
        ("iwi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", None),
    ],
)
def test_deletion_vectors_are_found_as_the_protocol_says(vector: str, expected: str | None) -> None:
    assert vector_path(vector) == expected


@pytest.mark.parametrize("offset", [None, 4])
def test_a_deletion_vector_whose_name_ends_like_an_offset_is_found(offset: int | None) -> None:
    story = LogBuilder().create()
    story.commit("DELETE", add_of("a", deletionVector=vector_of("0" * 18 + "@1", offset=offset)))
    live = fold_table_files(story.facts(), resolve=lambda _: None, now_ms=0).live
    named = f"deletion_vector_{UUID(int=81 * 85 + 1)}.bin"
    assert [name for name in live if not is_data_file(name)] == [named]


def test_an_unknown_kind_of_deletion_vector_is_refused() -> None:
    with pytest.raises(Refused, match="'rsomething'"):
        vector_path("rsomething")


ABSOLUTE = [f"{scheme}/lake/bronze/t/d%20x/a" for scheme in ("", "file://", "file:")]
ODD = ["./odd", "d=1/../odd", ".//odd", "../t/odd"]


@pytest.mark.parametrize(
    ("path", "name"), [*((path, "d x/a") for path in ABSOLUTE), *((path, "odd") for path in ODD)]
)
def test_an_odd_or_absolute_path_is_looked_for_where_delta_reads_it(path: str, name: str) -> None:
    story = LogBuilder().create().append([(path, 1)])
    assert unreadable_files(story.store, story.snapshot())[0] == [name]
    story.store.put(f"bronze/t/{name}", b"")
    assert unreadable_files(story.store, story.snapshot())[0] == []


def test_a_file_of_another_table_cannot_be_looked_for() -> None:
    story = LogBuilder().create().append([("file:/elsewhere/a", 1)])
    with pytest.raises(Refused, match="file:/elsewhere/a lies outside"):
        unreadable_files(story.store, story.snapshot())
