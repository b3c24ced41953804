"""A damaged log is read as what it meant, or it is Broken or Refused, with its table and version; never anything else."""

import copy
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakehouse.base.errors import Broken, Refused
from lakehouse.delta.commits import Commit
from lakehouse.delta.log import TableFacts
from lakehouse.delta.log.read_log import read_file_history
from lakehouse.delta.snapshot import Snapshot
from lakehouse_tests.checkpoint_parquet import checkpoint_parquet
from lakehouse_tests.log_builder import LogBuilder, add_of, vector_of

ABSENT = object()
UUID = "3a0d65cd-4056-49b8-937b-95f9e3ee90e5"
# Of these the protocol requires every field named here; what else an action has may be left out, and then counts as unknown.
REQUIRED = {
    "add": ("path", "partitionValues", "size", "modificationTime", "dataChange"),
    "remove": ("path", "dataChange"),
    "cdc": ("path",),
    "metaData": ("id", "schemaString", "partitionColumns", "configuration"),
    "protocol": ("minReaderVersion", "minWriterVersion", "readerFeatures", "writerFeatures"),
    "txn": ("appId", "version"),
    "domainMetadata": ("domain", "configuration", "removed"),
    "sidecar": ("path",),
}
OPTIONAL = ("deletionVector", "offset")
VECTOR = ("storageType", "pathOrInlineDv", "cardinality")
WRONG = st.sampled_from(
    [None, True, 7, -7, 0.5, "", "7", "{}", [], [7], ["x"], {}, {"x": 7}, ABSENT]
)


def made() -> LogBuilder:
    """A log with every kind of action, of which no metaData and no protocol is superseded."""
    log = LogBuilder().create(
        columns={"id": "long", "d": "string"},
        partition_by=["d"],
        properties={"delta.appendOnly": "false"},
        features=["clustering", "domainMetadata"],
        reader_features=["deletionVectors", "v2Checkpoint"],
    )
    log.append([("d=1/a", 10), ("d=1/b", 20), ("d=2/c", 30)], transaction=("app", 4))
    log.delete_rows({"d=1/a": 3})
    log.commit("CLUSTER BY", domain("delta.clustering", '{"clusteringColumns":[["id"]]}'))
    log.delete(["d=1/b"])
    change = {"path": "_change_data/x", "partitionValues": {"d": "1"}, "size": 1}
    log.commit("UPDATE", {"cdc": {**change, "dataChange": False}})
    return log.optimize(["d=2/c"], into=("d=2/e", 30))


def domain(name: str, configuration: str) -> dict[str, Any]:
    told = {"domain": name, "configuration": configuration, "removed": False}
    return {"domainMetadata": told}


def lines_of(log: LogBuilder, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.store.read(name).splitlines()]


def put(log: LogBuilder, name: str, lines: list[dict[str, Any]]) -> None:
    log.store.put(name, "\n".join(map(json.dumps, lines)).encode())


def spoiled(value: Any, path: tuple[Any, ...], wrong: Any) -> Any:
    """The same JSON with something else at a place in it, or nothing."""
    found = copy.deepcopy(value)
    within = found
    for step in path[:-1]:
        within = within[step]
    if wrong is ABSENT:
        del within[path[-1]]
    else:
        within[path[-1]] = wrong
    return found


def places(action: Mapping[str, Any]) -> Iterator[tuple[tuple[Any, ...], bool]]:
    """Each field of an action's line, with whether it must be there."""
    for kind, value in action.items():
        for name in value:
            yield (kind, name), name in REQUIRED.get(kind, ())
        for name in value.get("deletionVector") or {}:
            is_required = name in VECTOR and (kind == "add" or name != "cardinality")
            yield (kind, "deletionVector", name), is_required


def means_the_same(found: TableFacts, wanted: TableFacts) -> bool:
    """Whether both tell the same, but for what the one does not know, and for what commits may say of themselves as they like."""

    def commit(each: Commit) -> Commit:
        said: dict[str, Any] = {"operation": "", "parameters": {}, "metrics": {}}
        return replace(each, **said, committed_ms=0, removed_bytes=0)

    def known(snapshot: Snapshot, *, than: Snapshot) -> Snapshot:
        files = tuple(
            replace(file, row_count=other.row_count if file.row_count is None else file.row_count)
            for file, other in zip(snapshot.files, than.files, strict=True)
        )
        stones = tuple(
            replace(
                stone,
                deleted_ms=stone.deleted_ms or other.deleted_ms,
                size_bytes=stone.size_bytes or other.size_bytes,
            )
            for stone, other in zip(snapshot.tombstones, than.tombstones, strict=True)
        )
        vectors = dict.fromkeys(snapshot.removed_vectors)
        same = replace(snapshot, files=files, tombstones=stones, removed_vectors=vectors)
        return replace(same, committed_ms=0, log=than.log)

    told, meant = ([*map(commit, each.history.commits)] for each in (found, wanted))
    snapshot = known(found.snapshot, than=wanted.snapshot)
    return told == meant and snapshot == known(wanted.snapshot, than=wanted.snapshot)


def check(log: LogBuilder, wanted: TableFacts, *, is_required: bool) -> None:
    found = told = None
    try:
        found = log.facts()
    except (Broken, Refused) as error:
        told = str(error)
    if found is None:
        assert re.search(r"bronze/t.*\d", str(told))
    else:
        assert not is_required and means_the_same(found, wanted)


CHECKPOINTS: dict[str, dict[str, Any] | None] = {
    "none": None,
    "in JSON": {"json_file": True},
    "in JSON with sidecars": {"json_file": True, "sidecars": 1},
}


@given(st.data())
@settings(deadline=None, max_examples=120, derandomize=True)
@pytest.mark.parametrize("checkpoint", CHECKPOINTS.values(), ids=CHECKPOINTS)
def test_a_field_that_is_damaged_is_told_or_does_not_matter(
    checkpoint: dict[str, Any] | None, data: st.DataObject
) -> None:
    log = made()
    if checkpoint:
        log.checkpoint(uuid=UUID, **checkpoint).forget_before(7)
    wanted = log.facts()
    names = [file.name for file in log.store.list(log.key) if file.name.endswith(".json")]
    name = data.draw(st.sampled_from(names))
    lines = lines_of(log, name)
    place = data.draw(st.integers(0, len(lines) - 1))
    path, is_required = data.draw(st.sampled_from([*places(lines[place])]))
    wrong = data.draw(WRONG)
    before = reduce(lambda within, step: within[step], path, lines[place])
    # What has the right type may be right, and a deletion vector that is left out is none: nobody can tell these from an undamaged log.
    may_be_right = type(wrong) is type(before) and wrong not in ("", -7, [7], {"x": 7})
    if may_be_right or (path[-1] in OPTIONAL and wrong in (None, ABSENT)):
        return
    put(log, name, [*lines[:place], spoiled(lines[place], path, wrong), *lines[place + 1 :]])
    check(log, wanted, is_required=is_required)


@pytest.mark.parametrize("named", [{}, {"readerFeatures": None}])
def test_features_that_a_protocol_has_to_name_are_not_taken_for_none(named: dict[str, Any]) -> None:
    log = made()
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "writerFeatures": []}
    log.commit("UPGRADE", {"protocol": {**protocol, **named}})
    with pytest.raises(Broken, match="log of bronze/t: its protocol at version 7 cannot be read"):
        log.facts()


def test_a_commit_that_is_cut_within_a_line_is_broken() -> None:
    log = made()
    name = log.commit_name(2)
    content = log.store.read(name)
    for end in range(1, len(content)):
        log.store.put(name, content[:end])
        if content[end : end + 1] != b"\n" and content[end - 1 : end] != b"\n":
            message = r"00000000000000000002\.json, line \d is not a Delta action"
            with pytest.raises(Broken, match=message):
                log.facts()


SCHEMAS = ["{", "[]", "{}", '{"fields":7}', '{"fields":[7]}', '{"fields":[{}]}']
SCHEMAS += ['{"fields":[{"name":"id"}]}', "[" * 100_000, '{"fields":[]}']


@pytest.mark.parametrize("schema", SCHEMAS)
def test_an_unreadable_schema_is_named_unless_a_newer_one_is_there(schema: str) -> None:
    log = made()
    first = lines_of(log, log.commit_name(0))
    [metadata] = [line["metaData"] for line in first if "metaData" in line]
    log.commit("SET TBLPROPERTIES", {"metaData": {**metadata, "schemaString": schema}})
    told = r"log of bronze/t: its metaData at version 7 cannot be read"
    with pytest.raises(Broken, match=told):
        log.facts()
    with pytest.raises(Broken, match=told):
        read_file_history(log.store, log.key, uri="x")
    log.commit("SET TBLPROPERTIES", {"metaData": metadata})
    assert log.snapshot().version == 8


CLUSTERINGS = ["7", "[[]]", "[[7]]"]
CLUSTERINGS = ["", "{", "[]", "{}", *(f'{{"clusteringColumns":{each}}}' for each in CLUSTERINGS)]


@pytest.mark.parametrize("configuration", CLUSTERINGS)
def test_a_clustering_that_cannot_be_read_is_told(configuration: str) -> None:
    log = made().commit("CLUSTER BY", domain("delta.clustering", configuration))
    message = r"log of bronze/t: its clustering at version 7 cannot be read"
    with pytest.raises(Broken, match=message):
        log.facts()


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_domain_s_configuration_may_be_empty(checkpoint: bool) -> None:
    story = made().commit("WRITE", domain("a.writer", ""))
    if checkpoint:
        story.checkpoint().forget_before(story.version)
    assert story.snapshot().version == story.version


def test_what_a_commit_says_of_itself_may_be_anything() -> None:
    odd = {"timestamp": "now", "operation": 7, "operationParameters": []}
    odd |= {"operationMetrics": "x", "userMetadata": {"compaction": 1}}
    log = made()
    log.store.put(log.commit_name(7), json.dumps({"commitInfo": odd}).encode())
    commit = log.facts().history.commits[-1]
    assert (commit.operation, commit.parameters, commit.metrics) == ("UNKNOWN", {}, {})
    assert commit.user_metadata is None
    assert commit.committed_ms > 0


@pytest.mark.parametrize("vector", ["", "0" * 19, "\u00fc" + "0" * 19, " " * 20])
def test_a_deletion_vector_with_an_id_that_is_none_is_told(vector: str) -> None:
    log = LogBuilder().create().append([("a", 10)])
    with pytest.raises(Broken, match=r"00000000000000000002\.json, line 2 is not a Delta action"):
        log.commit("DELETE", add_of("a", deletionVector=vector_of(vector))).facts()


def parquet_of(log: LogBuilder) -> tuple[str, list[dict[str, Any]]]:
    """A checkpoint's name, and its rows."""
    log.checkpoint().forget_before(log.version + 1)
    return f"{log.key}/_delta_log/{log.version:020}.checkpoint.parquet", log._checkpoint_rows()


NEEDED = [
    (kind, name)
    for kind, names in REQUIRED.items()
    for name in names
    if kind not in ("cdc", "sidecar") and name != "dataChange"
]


@pytest.mark.parametrize(
    ("kind", "name"), [*NEEDED, *(("vector", name) for name in VECTOR), ("sidecar", "path")]
)
def test_a_field_that_is_null_in_a_parquet_checkpoint_is_told(kind: str, name: str) -> None:
    log = made()
    stored, rows = parquet_of(log)
    if kind == "sidecar":
        rows.append({"sidecar": {"path": "x", "sizeInBytes": 1, "modificationTime": 1}})
    within = ("add", "deletionVector") if kind == "vector" else (kind,)
    has_it = [reduce(lambda row, step: row.get(step) or {}, within, row) for row in rows]
    place = next(at for at, found in enumerate(has_it) if found)
    rows[place] = spoiled(rows[place], (*within, name), None)
    log.store.put(stored, checkpoint_parquet(rows, stats="both"))
    told = r"00000000000000000006\.checkpoint\.parquet cannot be read|log of bronze/t: its .* at version 6 cannot be read"
    with pytest.raises(Broken, match=told):
        log.facts()


# Another column in the place of one, or none.
COLUMNS: list[tuple[str, str, pa.DataType | None]] = [
    ("add", "path", pa.binary()),
    ("add", "size", pa.string()),
    ("add", "modificationTime", pa.float64()),
    ("add", "partitionValues", pa.map_(pa.string(), pa.int64())),
    ("add", "stats_parsed", pa.struct([("numRecords", pa.string())])),
    ("remove", "deletionTimestamp", pa.string()),
    ("remove", "path", pa.binary()),
    ("add", "path", None),
    ("add", "partitionValues", None),
    ("txn", "appId", None),
    ("add", "deletionVector", pa.struct(dict.fromkeys(VECTOR[:2], pa.string()))),
]
WITHIN = {"numRecords": "7", "storageType": "u", "pathOrInlineDv": "0" * 20}


@pytest.mark.parametrize(("kind", "name", "type_"), COLUMNS)
def test_a_parquet_checkpoint_with_another_column_is_told(
    kind: str, name: str, type_: pa.DataType | None
) -> None:
    log = made()
    stored, _ = parquet_of(log)
    table = pq.read_table(pa.BufferReader(log.store.read(stored)))
    struct = table.column(kind).combine_chunks()
    fields = {field.name: struct.field(field.name) for field in struct.type if field.name != name}
    if type_ is not None:
        if not pa.types.is_nested(type_):
            fields[name] = struct.field(name).cast(type_)
        else:
            has_names = not pa.types.is_map(type_)
            value = {field.name: WITHIN[field.name] for field in type_} if has_names else None
            fields[name] = pa.array([value] * len(table), type_)
    changed = pa.StructArray.from_arrays([*fields.values()], names=[*fields], mask=struct.is_null())
    sink = pa.BufferOutputStream()
    pq.write_table(table.set_column(table.schema.get_field_index(kind), kind, changed), sink)
    log.store.put(stored, sink.getvalue().to_pybytes())
    with pytest.raises(Broken, match=r"00000000000000000006\.checkpoint\.parquet cannot be read"):
        log.facts()


def test_a_parquet_checkpoint_that_is_cut_is_broken() -> None:
    log = made()
    stored, _ = parquet_of(log)
    content = log.store.read(stored)
    for end in range(0, len(content), 97):
        log.store.put(stored, content[:end])
        message = r"00000000000000000006\.checkpoint\.parquet cannot be read"
        with pytest.raises(Broken, match=message):
            log.facts()
