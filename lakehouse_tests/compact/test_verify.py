"""A compaction whose rows differ does not stay, and nobody's rows are lost in undoing it."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from lakehouse.base.errors import Broken
from lakehouse.compact import run, verify
from lakehouse.compact.plan.compaction import CompactionPlan
from lakehouse.compact.plan.history import Comparison
from lakehouse.compact.run import compact
from lakehouse.declare.policies import Compaction
from lakehouse.declare.table import Append, Table
from lakehouse.delta.commits import Commit
from lakehouse.delta.snapshot import DataFile, Snapshot
from lakehouse.lake.lake import Lake
from lakehouse.materialize.run import write_table
from lakehouse.spark.frames import content_hash
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.memory_store import MemoryStore
from lakehouse_tests.support.example_lake import events, facts_of, version_of

EVERY_ROW = replace(events, compaction=Compaction(verify="content"))
ROWS = [(number, number % 2) for number in range(30)]
FAULTS = {
    "loses a row": [row for row in ROWS if row != (17, 1)],
    "swaps partitions": [(id_, 1 - part if id_ in (16, 17) else part) for id_, part in ROWS],
}


@pytest.mark.parametrize(
    ("fault", "by"),
    [pytest.param("swaps partitions", "content", marks=pytest.mark.long), ("loses a row", "rows")],
)
def test_a_compaction_that_changes_rows_is_undone_and_said(
    lake: Lake,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
    by: Literal["content", "rows"],
) -> None:
    table = replace(events, compaction=Compaction(verify=by))
    _three_files(lake)
    monkeypatch.setattr(run, "run_statement", _rewriting(FAULTS[fault]))
    message = r"version 3 must have the rows of version 2, but 30 rows became (29|30) rows, differing in . partitions?. Version 2 is restored$"
    with pytest.raises(Broken, match=message):
        compact(lake, spark, table)
    assert (version_of(lake, events.key), _rows(lake)) == (4, ROWS)
    monkeypatch.undo()
    if by == "rows":  # no data is read
        monkeypatch.setattr(verify, "content_sums", _interrupted)
    assert compact(lake, spark, table).compared == Comparison(by=by, row_count=30)
    assert _rows(lake) == ROWS


@pytest.mark.long
def test_a_compaction_whose_files_cannot_be_read_is_undone(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    _three_files(lake)
    monkeypatch.setattr(run, "run_statement", _rewriting(ROWS))
    monkeypatch.setattr(run, "verify", _after_damage(lambda _: b"no Parquet"))
    message = r"version 3 must .*, but its files cannot be read \(.*. Version 2 is restored$"
    with pytest.raises(Broken, match=message):
        compact(lake, spark, EVERY_ROW)
    assert (version_of(lake, events.key), _rows(lake)) == (4, ROWS)
    restored = spark.read.format("delta").load(lake.table_uri(events.key))
    assert sorted(map(tuple, restored.collect())) == ROWS


@pytest.mark.long
def test_an_undone_compaction_gives_an_append_downstream_no_row_twice(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = _three_files(lake, {"delta.enableChangeDataFeed": "true"})
    copies = Table(
        key="silver/copies", inputs=(events,), write=Append(), transform=lambda events: events
    )
    write_table(lake, spark, copies)

    def another(commit: Commit) -> bytes:
        return lake.store.read(f"{events.key}/{commit.removed_paths[0]}")

    monkeypatch.setattr(run, "verify", _after_damage(another))
    with pytest.raises(Broken, match="Version 2 is restored"):
        compact(lake, spark, EVERY_ROW)
    _append(uri, [(1000, 0), (1001, 0)])
    assert write_table(lake, spark, copies).rows_written == 2
    assert _rows(lake, copies.key) == _rows(lake) == [*ROWS, (1000, 0), (1001, 0)]


@pytest.mark.long
def test_rows_of_every_type_are_compared_by_the_log_without_reading_data(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = "NULLIF(id, 3) AS id, IF(id % 2 = 0, 0, 1) AS part, DECIMAL(id) / 7 AS decimal, DATE '1500-01-01' + INT(id) AS date"
    times = "TIMESTAMP '0001-01-01' AS first, TIMESTAMP '9999-12-31 23:59:59.999999' AS last, TIMESTAMP_NTZ '1969-12-31 01:02:03' AS local"
    nested = "ARRAY(id, NULL) AS list, MAP(STRING(id), STRUCT(id, ARRAY(STRING(id)) AS texts)) AS map, IF(id = 4, NULL, STRUCT(id)) AS struct"
    plain = "FLOAT('NaN') AS nan, -0.0D AS zero, STRING(id) AS text, BINARY(STRING(id)) AS bytes, id > 2 AS truth, TINYINT(-id) AS tiny"
    frame = spark.sql(f"SELECT {odd}, {times}, {nested}, {plain} FROM RANGE(0, 10, 1, 2)")
    frame.write.format("delta").partitionBy("part").save(lake.settings.table_uri(events.key))
    monkeypatch.setattr(verify, "content_sums", _interrupted)
    assert compact(lake, spark, events).compared == Comparison(by="rows", row_count=10)


def test_rows_that_only_spark_can_compare_are_compared_and_a_file_that_its_answer_lacks_is_an_error(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    _three_files(lake)
    before, real = facts_of(lake, events.key), verify._by_file
    monkeypatch.setattr(run, "run_statement", _rewriting(ROWS))
    monkeypatch.setattr(verify, "_by_file", lambda *given: dict(sorted(real(*given).items())[1:]))
    message = r"which names 5 file\(s\), lacks .*/part=0/part-.*. Nothing is restored"
    with pytest.raises(Broken, match=message):
        compact(lake, spark, EVERY_ROW)
    assert version_of(lake, events.key) == 3
    monkeypatch.setattr(verify, "_by_file", real)
    after = facts_of(lake, events.key)
    found = verify.verify(
        lake, lambda: spark, before.snapshot, after.snapshot, after.history.commits[3]
    )
    assert found.row_count == 30


@pytest.mark.parametrize(
    ("rows", "deleted", "is_known"),
    [(0, 0, True), (3, 3, True), (3, 2, False), (1, 0, False), (None, 0, False)],
)
def test_a_file_that_the_answer_lacks_has_no_rows_only_if_the_log_says_so(
    memory: Lake, rows: int | None, deleted: int, is_known: bool
) -> None:
    snapshot = LogBuilder(memory.store, events.key).create().snapshot()
    file = DataFile(path="a%20b", size_bytes=1, modified_ms=1, row_count=rows)
    file = replace(file, deleted_row_count=deleted)
    lacks = r"which names 0 file\(s\), lacks /lake/bronze/events/a b. Nothing is restored"
    with nullcontext() if is_known else pytest.raises(Broken, match=lacks):
        assert verify._sum_of(snapshot, file, {}) == (0, 0)
    assert verify._sum_of(snapshot, file, {"/lake/bronze/events/a b": (5, 7)}) == (5, 7)


def test_a_file_that_a_commit_names_and_its_version_lacks_is_an_error(memory: Lake) -> None:
    log = LogBuilder(memory.store, events.key).create().append([("a", 1), ("b", 1)])
    before = log.snapshot()
    facts = log.optimize(["a", "b"], into=("c", 2)).append([("d", 1)]).facts()
    assert [
        file.path for file in verify._side(memory, before, facts.snapshot, 1, ["a", "b"]).files
    ] == [
        "a",
        "b",
    ]
    assert [file.path for file in verify._side(memory, before, facts.snapshot, 2, ["c"]).files] == [
        "c"
    ]
    message = r"version 1 lacks 1 file\(s\) that its commit names, first x. Nothing is restored"
    with pytest.raises(Broken, match=message):
        verify._side(memory, before, facts.snapshot, 1, ["a", "x"])


# A path as the log has it, and as Spark tells it.
PATHS = {
    "k=a%2520b/c%20d%25+e.parquet": "file:/lake/bronze/events/k=a%2520b/c%20d%25+e.parquet",
    "k=ü%20+/it's%5E.parquet": "file:///lake/bronze/events/k=ü%20+/it's%5E.parquet",
    "file:/elsewhere/x%20y.parquet": "file:///elsewhere/x%20y.parquet",
    "s3://bucket/x%2520y.parquet": "s3a://bucket/x%2520y.parquet",
}


@pytest.mark.parametrize(("logged", "told"), PATHS.items())
def test_a_path_of_the_log_and_one_of_spark_are_decoded_once_each(logged: str, told: str) -> None:
    snapshot = LogBuilder(MemoryStore(), events.key).create().snapshot()
    assert verify._comparable_path(snapshot, logged) == verify._comparable_path(snapshot, told)
    others = (logged, logged.replace("%25", "%"), logged.replace("%20", "%2520"))
    assert len({verify._comparable_path(snapshot, path) for path in others}) > 1


def _after_damage(content: Callable[[Commit], bytes]) -> Callable[..., Comparison]:
    """The verification of a commit whose first new file has another content."""
    real = run.verify

    def damaged(*given: Any) -> Comparison:
        lake, commit = given[0], given[-1]
        lake.store.put(f"{events.key}/{commit.added_paths[0]}", content(commit))
        return real(*given)

    return damaged


def _interrupted(*_: object, **__: object) -> int:
    raise KeyboardInterrupt


def _three_files(lake: Lake, properties: dict[str, str] | None = None) -> str:
    """A table of `ROWS` whose versions 0 to 2 add a file to each of two partitions; its URI."""
    for start in (0, 10, 20):
        _append(uri := lake.settings.table_uri(events.key), ROWS[start : start + 10], properties)
    return uri


def _append(
    uri: str, rows: Sequence[tuple[int, int]], properties: dict[str, str] | None = None
) -> None:
    more: dict[str, Any] = {"partition_by": ["part"], "configuration": properties}
    write_deltalake(uri, _arrow(rows), mode="append", **more)


def _arrow(rows: Sequence[tuple[int, int]]) -> pa.Table:
    ids, parts = zip(*rows, strict=True)
    return pa.table({"id": pa.array(ids, pa.int64()), "part": pa.array(parts, pa.int32())})


def _rows(lake: Lake, key: str = events.key) -> list[tuple[int, int]]:
    """The rows of a table now, sorted."""
    found = DeltaTable(lake.settings.table_uri(key)).to_pyarrow_table()
    return sorted(zip(found["id"].to_pylist(), found["part"].to_pylist(), strict=True))


def _rewriting(rows: Sequence[tuple[int, int]]) -> Callable[..., None]:
    """Stands for OPTIMIZE: one commit of the plan, in which these rows take the place of all files."""

    def run_statement(
        _spark: object, snapshot: Snapshot, _planned: CompactionPlan, figures: str
    ) -> None:
        properties = CommitProperties(custom_metadata={"userMetadata": figures})
        write_deltalake(snapshot.uri, _arrow(rows), mode="overwrite", commit_properties=properties)
        commit = max(Path(snapshot.uri, "_delta_log").glob("*.json"))
        commit.write_text(commit.read_text().replace("delta-rs:", "Apache-Spark/"))

    return run_statement


def test_spark_s_hash_of_a_row_tells_where_nulls_stand(spark: SparkSession) -> None:
    schema = "a INT, b INT, c ARRAY<INT>, d STRUCT<x: INT, y: INT>, e MAP<STRING, INT>"
    rows: list[Any] = [(a, b, None, None, None) for a, b in ((None, 7), (7, None), (1, 1))]
    rows += [(1, 1, values, None, None) for values in ([], [1], [1, None], [None, 1])]
    rows += [(1, 1, None, fields, None) for fields in ((None, None), (1, None), (None, 1))]
    rows += [(1, 1, None, None, entries) for entries in ({"k": None}, {})]
    frame = spark.createDataFrame(rows, schema)
    hashed = [value for (value,) in frame.select(content_hash(frame.schema.fields)).collect()]
    assert len({*hashed}) == len(rows)
