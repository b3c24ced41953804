"""Tables that others made with Spark, one for each feature: adopted from the terminal, told as Spark tells them, compacted and vacuumed."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakehouse.base.settings import Settings
from lakehouse.declare.policies import SHORT_RETENTION_RISK, Vacuum
from lakehouse.declare.table import Adopted, Table
from lakehouse.lake.lake import open_lake
from lakehouse.spark.temporary_confs import session_confs
from lakehouse.vacuum.facts import LakeFacts
from lakehouse.vacuum.run import vacuum
from lakehouse_tests.cli.test_through_dagster import settings as settings
from lakehouse_tests.long.test_log_reader_spark import RealTable
from lakehouse_tests.support.terminal import Terminal
from lakehouse_tests.support.vacuums import deleted

pytestmark = pytest.mark.spark

_APPEND = "INSERT INTO {t} SELECT id, concat('2026-01-0', pmod(id, 2) + 1), INT(id) FROM range(%d, %d, 1, %d)"
_APPENDS = tuple(_APPEND % (first, first + 20, 2) for first in range(0, 120, 20))


def _created(
    *,
    by: str = "",
    columns: str = "id BIGINT, day STRING, n INT",
    deletion_vectors: bool = False,
    **more: str,
) -> str:
    """The statement that creates a table with `more` properties; `__` stands for a point in a name."""
    own = {"deletedFileRetentionDuration": "interval 1 millisecond"}
    own |= {"enableDeletionVectors": str(deletion_vectors), **more}
    properties = ", ".join(f"'delta.{name.replace('__', '.')}' = '{own[name]}'" for name in own)
    return f"CREATE TABLE {{t}} ({columns}) USING delta {by} TBLPROPERTIES ({properties})"


def _on(*properties: str) -> dict[str, Any]:
    return dict.fromkeys(properties, "true")


# A table's feature -> the statements that make the table, at `{t}`.
MADE: Mapping[str, Sequence[str]] = {
    "deletionVectors": (
        _created(deletion_vectors=True),
        *_APPENDS,
        "DELETE FROM {t} WHERE id % 7 = 3",
        "UPDATE {t} SET n = -n WHERE id % 11 = 5",
    ),
    "clustering": (_created(by="CLUSTER BY (n, day)"), *_APPENDS),
    "v2Checkpoint": (
        _created(checkpointPolicy="v2", checkpointInterval="3", deletion_vectors=True),
        *_APPENDS,
        "DELETE FROM {t} WHERE id < 10",
    ),
    "columnMapping": (
        _created(columnMapping__mode="name", by="PARTITIONED BY (day)"),
        *_APPENDS,
        "INSERT INTO {t} VALUES (998, 'a b/%20', 7), (999, NULL, 8)",
        "ALTER TABLE {t} RENAME COLUMN n TO `the n`",
        "ALTER TABLE {t} RENAME COLUMN day TO `the day`",
        "ALTER TABLE {t} ADD COLUMN (late STRING)",
        "INSERT INTO {t} VALUES (1000, NULL, 7, 'late')",
        "ALTER TABLE {t} DROP COLUMN `the n`",
    ),
    "rowTracking": (
        _created(**_on("enableRowTracking", "enableInCommitTimestamps"), deletion_vectors=True),
        *_APPENDS,
        "DELETE FROM {t} WHERE id % 5 = 1",
    ),
    "changeDataFeed": (
        _created(**_on("enableChangeDataFeed", "randomizeFilePrefixes"), deletion_vectors=True),
        *_APPENDS,
        "UPDATE {t} SET n = 0 WHERE id % 3 = 0",
        "DELETE FROM {t} WHERE id % 3 = 1",
    ),
    "typeWidening": (
        _created(**_on("enableTypeWidening", "checkpoint__writeStatsAsStruct")),
        *_APPENDS[:3],
        "ALTER TABLE {t} ALTER COLUMN n TYPE BIGINT",
        "ALTER TABLE {t} ADD CONSTRAINT positive CHECK (id >= 0)",
        *_APPENDS[3:],
        "INSERT INTO {t} VALUES (5000, NULL, 5000000000)",
    ),
    "variantType": (
        _created(columns="id BIGINT, v VARIANT, s STRUCT<a: INT, b: ARRAY<TIMESTAMP_NTZ>>"),
        *(
            "INSERT INTO {t} SELECT id, parse_json(concat('[', id, ']')), "
            f"named_struct('a', INT(id), 'b', array(TIMESTAMP_NTZ'2026-01-01')) FROM range({first}, {first + 20}, 1, 2)"
            for first in range(0, 120, 20)
        ),
    ),
}


def _do(spark: SparkSession, address: Path, statements: Sequence[str]) -> None:
    for statement in statements:
        spark.sql(statement.replace("{t}", f"delta.`{address}`")).collect()


def _detail(spark: SparkSession, address: Path) -> Any:
    return spark.sql(f"DESCRIBE DETAIL delta.`{address}`").collect()[0]


def _terminal(settings: Settings, tmp_path: Path) -> Terminal:
    """A terminal beside the tests' server, whose adopted tables are its own."""
    adopted = {"LAKEHOUSE_ADOPTED": str(tmp_path / "adopted.toml")}
    return Terminal(settings.home, **{**settings.as_environ(), **adopted})


def _rows(spark: SparkSession, address: Path) -> Counter[str]:
    """Each row as JSON, and how often it is there."""
    frame = spark.read.format("delta").load(str(address)).selectExpr("to_json(struct(*)) AS row")
    return Counter(row.row for row in frame.collect())


def _adopted(terminal: Terminal, address: Path) -> Mapping[str, Any]:
    [shown] = terminal.json("adopt", str(address), "--dry-run")
    assert not Path(terminal.environ["LAKEHOUSE_ADOPTED"]).exists()
    [found] = terminal.json("adopt", str(address))
    assert found["health"] == shown["health"]
    return found


def _compacted(
    spark: SparkSession, terminal: Terminal, key: str, address: Path
) -> Sequence[Mapping[str, Any]]:
    """The outcomes of compactions until nothing is left to merge: each did as it was planned, and every row stays."""
    rows, done = _rows(spark, address), list[Mapping[str, Any]]()
    while (outcome := terminal.json("compact", key))["version_after"] is not None:
        done.append(outcome)
        for name in ("files_removed", "files_added", "bytes_removed"):
            predicted, actual = outcome[name], outcome[f"actual_{name}"]
            is_least = "at least" in outcome["sentence"]
            is_met = actual >= predicted if is_least else actual == predicted
            assert is_met, (name, predicted, actual)
        assert _rows(spark, address) == rows
    return done


def _healed(
    settings: Settings, spark: SparkSession, terminal: Terminal, address: Path
) -> Sequence[Mapping[str, Any]]:
    """The outcomes of compactions after the adoption; each figure is held against Spark, and each row against the rows of before."""
    snapshot = RealTable(spark, address).checked()
    key, rows = _adopted(terminal, address)["table"], _rows(spark, address)
    [health] = terminal.json("health", key)
    assert health["file_count"] == snapshot.file_count
    assert (health["size_bytes"], health["row_count"]) == (snapshot.size_bytes, rows.total())
    done = _compacted(spark, terminal, key, address)
    [after] = terminal.json("health", key)
    file_count = _detail(spark, address).numFiles
    assert (after["file_count"], after["mergeable_file_count"]) == (file_count, 0)
    write = Adopted(uri=str(address), orphans="delete")
    table = Table(key=key, write=write, vacuum=Vacuum(accepts_short_retention=SHORT_RETENTION_RISK))
    with session_confs(spark, {"spark.databricks.delta.retentionDurationCheck.enabled": "false"}):
        rows_told = spark.sql(f"VACUUM delta.`{address}` RETAIN 0 HOURS DRY RUN").collect()
        theirs = [Path(row.path.removeprefix("file:")) for row in rows_told]
    dead = {str(path.relative_to(address)) for path in theirs if path.is_file()}
    vacuumed = vacuum(LakeFacts(open_lake(settings, tables=[table]), [table]), lambda: spark, table)
    names = [each.name for each in vacuumed.plan.candidates]
    # Hadoop's checksum of a file goes with it.
    assert {name for name in names if not name.endswith(".crc")} == dead
    assert (deleted(vacuumed), dict(vacuumed.failed)) == (len(names), {})
    assert _rows(spark, address) == rows
    return done


@pytest.mark.parametrize("feature", MADE)
def test_a_table_with_this_feature_is_told_as_spark_tells_it_and_healed(
    settings: Settings, spark: SparkSession, tmp_path: Path, feature: str
) -> None:
    address = tmp_path / "warehouse/orders"
    _do(spark, address, MADE[feature])
    assert feature in _detail(spark, address).tableFeatures
    done = _healed(settings, spark, _terminal(settings, tmp_path), address)
    assert sum(each["actual_files_removed"] for each in done) >= 10


def test_ten_thousand_small_files(settings: Settings, spark: SparkSession, tmp_path: Path) -> None:
    address = tmp_path / "warehouse/orders"
    _do(spark, address, [_created(deletion_vectors=True), _APPEND % (0, 20_000, 10_000)])
    [done] = _healed(settings, spark, _terminal(settings, tmp_path), address)
    assert (done["files_removed"], done["files_added"]) == (10_000, 1)
