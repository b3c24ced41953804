"""The log reader against real tables: what it folds is what Spark, Delta's version checksum and deltalake say.

`test_adopted_by_spark.py` compares a table of each feature in the same way."""

import json
from pathlib import Path

import deltalake
import pyarrow
import pytest
from pyspark.sql import SparkSession

from lakehouse.delta.log import TableFacts, read_facts
from lakehouse.delta.log.read_log import unreadable_files
from lakehouse.delta.snapshot import Snapshot
from lakehouse.spark.temporary_confs import session_confs
from lakehouse.store import DiskStore

pytestmark = pytest.mark.spark


class RealTable:
    """A Delta table in a folder of its own, written by Spark."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.spark, self.path = spark, path
        self.name = f"delta.`{path}`"
        self.store = DiskStore(path.parent)

    def sql(self, statement: str) -> None:
        self.spark.sql(statement.replace("{t}", self.name)).collect()

    def append(self, rows: int, *expressions: str, files: int = 1) -> None:
        frame = self.spark.range(0, rows, 1, files).selectExpr(*(expressions or ("id",)))
        frame.write.format("delta").mode("append").save(str(self.path))

    def facts(self) -> TableFacts:
        facts = read_facts(self.store, self.path.name, uri=str(self.path))
        assert facts is not None
        return facts

    def remove_from_log(self, pattern: str) -> None:
        found = list((self.path / "_delta_log").glob(pattern))
        assert found
        for file in found:
            file.unlink()

    def checked(self) -> Snapshot:
        """The newest snapshot, after it was compared with every other source there is."""
        snapshot = self.facts().snapshot
        detail = self.spark.sql(f"DESCRIBE DETAIL {self.name}").collect()[0]
        assert (snapshot.file_count, snapshot.size_bytes) == (detail.numFiles, detail.sizeInBytes)
        assert snapshot.partition_columns == tuple(detail.partitionColumns)
        assert dict(snapshot.properties) == dict(detail.properties)
        assert set(detail.tableFeatures) <= snapshot.features
        frame = self.spark.read.format("delta").load(str(self.path))
        assert snapshot.row_count == frame.count()
        columns = [(column.name, column.type) for column in snapshot.columns]
        assert columns == [(f.name, f.dataType.simpleString()) for f in frame.schema]
        self._check_against_deltalake(snapshot)
        self._check_against_checksum(snapshot)
        assert unreadable_files(self.store, snapshot)[0] == []
        return snapshot

    def _check_against_deltalake(self, snapshot: Snapshot) -> None:
        table = deltalake.DeltaTable(str(self.path))
        adds = pyarrow.table(table.get_add_actions(flatten=True)).to_pylist()
        assert snapshot.version == table.version()
        names = ("path", "size_bytes", "modification_time", "num_records")
        told = {tuple(add[name] for name in names) for add in adds}
        files = snapshot.files
        assert {(f.path, f.size_bytes, f.modified_ms, f.row_count) for f in files} == told

    def _check_against_checksum(self, snapshot: Snapshot) -> None:
        file = self.path / f"_delta_log/{snapshot.version:020}.crc"
        if not file.exists():  # Delta writes none after a RESTORE.
            return
        checksum = json.loads(file.read_text())
        assert snapshot.file_count == checksum["numFiles"]
        assert snapshot.size_bytes == checksum["tableSizeBytes"]
        deleted_rows = sum(file.deleted_row_count for file in snapshot.files)
        assert deleted_rows == checksum.get("numDeletedRecordsOpt", 0)
        vectors = sum(file.deletion_vector is not None for file in snapshot.files)
        assert vectors == checksum.get("numDeletionVectorsOpt", 0)
        assert snapshot.committed_ms == checksum.get("inCommitTimestampOpt", snapshot.committed_ms)


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> RealTable:
    return RealTable(spark, tmp_path / "t")


@pytest.mark.parametrize("with_checkpoint", [False, True])
def test_partition_values_come_back_as_written(table: RealTable, with_checkpoint: bool) -> None:
    """The random tables of `make bench` have other types and names of partition columns."""
    values = ["a b", "a/b", "100%", "a%20b", "ä€😀", "x=y", "q?#&+", "it's", "Tab\t", ":*|<>", "{b}", "null", " lead"]  # fmt: skip
    rows = ", ".join(f"({number}, {json.dumps(value)})" for number, value in enumerate(values))
    table.sql("CREATE TABLE {t} (id BIGINT, p STRING, n INT) USING delta PARTITIONED BY (p, n)")
    query = f"SELECT id, p, IF(id % 2 = 0, NULL, 7) FROM VALUES {rows}, (98, NULL), (99, '') AS v(id, p)"
    table.sql(f"INSERT INTO {{t}} {query}")
    if with_checkpoint:
        table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.checkpointInterval' = '1')")
        table.append(1, "id", "'late' AS p", "1 AS n")
        table.remove_from_log("*0.json")
    written = {(value, "7" if number % 2 else None) for number, value in enumerate(values)}
    written |= {(None, None), (None, "7")}
    partitions = [dict(file.partition) for file in table.checked().files]
    found = {(each["p"], each["n"]) for each in partitions}
    assert found == written | ({("late", "1")} if with_checkpoint else set())


TOP = "checkpointV2.topLevelFileFormat"
IN_JSON = {TOP: "json", "checkpoint.partSize": "3"}


@pytest.mark.parametrize(
    ("policy", "confs", "name", "sidecars"),
    [
        ("classic", {}, "*.checkpoint.parquet", 0),
        ("classic", {"checkpoint.partSize": "3"}, "*.checkpoint.0000000002.*.parquet", 0),
        ("v2", {TOP: "parquet"}, "*.checkpoint.*.parquet", 1),
        ("v2", IN_JSON, "*.checkpoint.*.json", 2),
    ],
)
def test_checkpoints_of_every_policy_fold_to_the_same_table(
    table: RealTable, policy: str, confs: dict[str, str], name: str, sidecars: int
) -> None:
    properties = f"'delta.checkpointPolicy' = '{policy}', 'delta.checkpointInterval' = '4'"
    made = f"USING delta PARTITIONED BY (p) TBLPROPERTIES ({properties})"
    table.sql(f"CREATE TABLE {{t}} (id BIGINT, p INT) {made}")
    confs = {f"spark.databricks.delta.{conf}": value for conf, value in confs.items()}
    with session_confs(table.spark, confs):
        for _ in range(3):
            table.append(40, "id", "CAST(id % 4 AS INT) AS p", files=2)
        table.sql("DELETE FROM {t} WHERE p = 3")
        table.append(10, "id", "9 AS p")
    snapshot = table.checked()
    assert snapshot.log.checkpoint_version == 4
    log = table.path / "_delta_log"
    assert any(log.glob(f"[!.]{name}"))
    assert len(list(log.glob("_sidecars/[!.]*.parquet"))) >= sidecars
    assert any(log.glob("_sidecars/*")) == (sidecars > 0)
    table.remove_from_log("0000000000000000000[0-4].json")
    assert table.facts().snapshot.files == snapshot.files
    assert table.facts().snapshot.tombstones == snapshot.tombstones
    assert len(snapshot.tombstones) == 6


def test_history_and_compacted_marks_follow_optimize_restore_and_vacuum(table: RealTable) -> None:
    for _ in range(5):
        table.append(10)
    table.sql("OPTIMIZE {t}")
    optimized = table.checked()
    assert [file.compacted for file in optimized.files] == [True]
    assert len(optimized.tombstones) == 5
    assert table.facts().history.data_changed_after(4) is False
    table.append(10)
    table.sql("RESTORE TABLE {t} TO VERSION AS OF 3")
    restored = table.checked()
    assert (restored.file_count, restored.row_count) == (4, 40)
    assert len(restored.tombstones) == 3
    table.sql("VACUUM {t}")
    assert table.checked().file_count == 4
    commits = table.facts().history.commits
    history = table.spark.sql(f"DESCRIBE HISTORY {table.name}").collect()
    described = {row.version: row for row in history}
    assert [commit.version for commit in commits] == sorted(described)
    for commit in commits:
        row = described[commit.version]
        told = row.operationParameters
        known = {name: told[name] for name in told if told[name] is not None}
        assert (commit.operation, commit.parameters) == (row.operation, known)
        assert commit.metrics == row.operationMetrics
    operations = {commit.operation: commit.changed_data for commit in commits}
    same = dict.fromkeys(("OPTIMIZE", "VACUUM START", "VACUUM END"), False)
    assert operations == {"WRITE": True, "RESTORE": True} | same


def test_an_empty_append_changes_no_data(table: RealTable) -> None:
    table.append(3)
    writer = table.spark.range(0).write.format("delta").mode("append")
    writer.option("txnAppId", "lakehouse/ingest/x").option("txnVersion", 1).save(str(table.path))
    assert [commit.changed_data for commit in table.facts().history.commits] == [True, False]


@pytest.mark.parametrize("mode", ["name", "id", "by an upgrade"])
def test_column_mapping_keeps_logical_names(table: RealTable, mode: str) -> None:
    is_upgrade = mode == "by an upgrade"
    made = "" if is_upgrade else f"TBLPROPERTIES ('delta.columnMapping.mode' = '{mode}')"
    table.sql(f"CREATE TABLE {{t}} (id BIGINT, day DATE) USING delta PARTITIONED BY (day) {made}")
    table.sql("INSERT INTO {t} VALUES (1, DATE'2013-01-01'), (2, NULL)")
    if is_upgrade:
        versions = "'delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5'"
        mapped = f"'delta.columnMapping.mode' = 'name', {versions}"
        table.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({mapped})")
    table.sql("ALTER TABLE {t} RENAME COLUMN day TO `the day`")
    table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.checkpointInterval' = '1')")
    table.sql("INSERT INTO {t} VALUES (3, DATE'2013-01-03')")
    days = ("2013-01-01", None, "2013-01-03")
    partitions = {file.partition for file in table.checked().files}
    assert partitions == {(("the day", day),) for day in days}


def test_nested_columns_and_comments(table: RealTable) -> None:
    table.sql(
        "CREATE TABLE {t} (id BIGINT NOT NULL COMMENT 'key', s STRUCT<a: INT, b: ARRAY<MAP<STRING, DECIMAL(10,2)>>>, "
        "c CHAR(3), v VARCHAR(9), b BINARY, t TIMESTAMP, n TIMESTAMP_NTZ, y TINYINT, x VARIANT) USING delta"
    )
    snapshot = table.facts().snapshot
    frame = table.spark.read.format("delta").load(str(table.path))
    columns = [(column.name, column.type) for column in snapshot.columns]
    assert columns == [(f.name, f.dataType.simpleString()) for f in frame.schema]
    assert (snapshot.columns[0].nullable, snapshot.columns[0].comment) == (False, "key")


def test_clustering_columns_have_logical_names(table: RealTable) -> None:
    mapped = "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    table.sql(f"CREATE TABLE {{t}} (id BIGINT, n INT) USING delta CLUSTER BY (id, n) {mapped}")
    table.sql("ALTER TABLE {t} RENAME COLUMN id TO `the id`")
    assert table.checked().clustering_columns == ("the id", "n")
