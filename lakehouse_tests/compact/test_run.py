"""What a compaction does is what its plan said, and a table that was compacted is left alone."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession

from lakehouse.base.errors import Broken, Refused
from lakehouse.base.reasons import Reason
from lakehouse.compact.plan.history import CompactionOutcome
from lakehouse.compact.run import compact, plan
from lakehouse.declare.policies import Compaction
from lakehouse.declare.table import Table
from lakehouse.lake.lake import Lake
from lakehouse.spark.temporary_confs import session_confs
from lakehouse_tests.support.example_lake import events, facts_of, session_settings, version_of

ODD_VALUES = (
    "a b",
    "it's",
    "ü%20日",
    None,
    "x/y=z",
    'q"u`o\\te',
    "[b]*?{c}",
    "plus+&#",
    "${spark.app.id}",
    "a\tb",
)


def test_a_partitioned_table_with_odd_values_and_late_data_gets_times_in_microseconds(
    lake: Lake, spark: SparkSession
) -> None:
    """Its times are INT96, Spark's default, which other readers cannot read outside of 1677 to 2262."""
    uri = lake.settings.table_uri(events.key)
    rows = [
        (batch, batch * 100 + place, value, place % 2, {"b": 1, "a": 2})
        for batch in range(3)
        for place, value in enumerate(ODD_VALUES[: 10 - 3 * batch])
    ]
    frame = spark.createDataFrame(
        rows, "batch INT, id BIGINT, text STRING, half INT, more MAP<STRING, INT>"
    )
    timed = frame.selectExpr(
        "*",
        "IF(half = 0, TIMESTAMP'2013-01-01 05:00:00.123', NULL) AS at",
        "IF(half = 0, TIMESTAMP'9999-12-31 23:59:59.999999', TIMESTAMP'0001-01-01') AS far",
    )
    with session_confs(spark, {"spark.sql.parquet.outputTimestampType": "INT96"}):
        timed.repartitionByRange(3, "batch").write.format("delta").partitionBy("text", "at").save(
            uri
        )
    before = _content(spark, uri)
    assert _stored_types(lake, "far") == {"INT96"}
    outcome = compact(lake, spark, events)
    assert (
        outcome.entry.compaction.files_removed,
        outcome.entry.compaction.files_added,
        outcome.rows_verified,
    ) == (18, 7, 18)
    _check_as_planned(lake, spark, outcome)
    assert _content(spark, uri) == before
    assert _stored_types(lake, "far") == {"INT96", "INT64"}  # a file alone in its partition stays
    compacted = DeltaTable(uri).to_pyarrow_table(columns=["far"], partitions=[("text", "=", "a b")])
    assert {moment.year for moment in compacted["far"].to_pylist()} == {9999}


@pytest.mark.long
def test_an_unreadable_file_is_named_with_what_to_do(lake: Lake, spark: SparkSession) -> None:
    uri = lake.settings.table_uri(events.key)
    for _ in range(2):
        write_deltalake(uri, pa.table({"id": range(10)}), mode="append")
    first, _ = (file.path for file in facts_of(lake, events.key).snapshot.files)
    content = lake.store.read(f"{events.key}/{first}")
    lake.store.delete([f"{events.key}/{first}"])
    with pytest.raises(Broken, match=f"{first} is in the table's log but not in storage.*RESTORE"):
        compact(lake, spark, events)
    lake.store.put(f"{events.key}/{first}", content)
    # Another writer adds a column that is NOT NULL and that no file has (delta-io/delta-rs#4586).
    commit = f"{events.key}/_delta_log/{{:020}}.json"
    lines = [json.loads(line) for line in lake.store.read(commit.format(0)).splitlines()]
    metadata = next(line["metaData"] for line in lines if "metaData" in line)
    schema = json.loads(metadata["schemaString"])
    schema["fields"].append({"name": "must", "type": "long", "nullable": False, "metadata": {}})
    changed = {"metaData": {**metadata, "schemaString": json.dumps(schema)}}
    lake.store.put(commit.format(2), json.dumps(changed).encode())
    with pytest.raises(Broken, match=r"^compaction of bronze/events: column must is NOT NULL"):
        compact(lake, spark, events)
    assert version_of(lake, events.key) == 2


def test_an_unpartitioned_table_fills_bins_to_the_target(lake: Lake, spark: SparkSession) -> None:
    small = replace(events, compaction=Compaction(target_file_bytes=4096))
    uri = lake.settings.table_uri(events.key)
    for rows in (10, 300, 50, 700, 2000, 20, 90, 200, 40, 60, 30, 80):
        write_deltalake(uri, pa.table({"id": range(rows)}), mode="append")
    outcome = compact(lake, spark, small)
    assert outcome.entry.compaction.files_added > 1
    _check_as_planned(lake, spark, outcome, table=small)


def test_the_commit_carries_the_plans_figures_and_the_session_no_setting(
    lake: Lake, spark: SparkSession, log_reads: Counter[str], plans_made: Counter[str]
) -> None:
    before = session_settings(spark)
    uri = lake.settings.table_uri(events.key)
    for _ in range(2):
        write_deltalake(uri, pa.table({"id": range(10)}), mode="append")
    planned = plan(lake, events)
    assert planned is not None
    log_reads.clear()
    plans_made.clear()
    outcome = compact(lake, spark, events)
    # Before, after, and once for the statistics that are compared.
    assert (log_reads[events.key], plans_made) == (3, {events.key: 1})
    facts = facts_of(lake, events.key)
    assert facts == outcome.facts
    commit = facts.history.commits[-1]
    assert (commit.operation, commit.changed_data) == ("OPTIMIZE", False)
    recorded = json.loads(commit.user_metadata or "")["plan"]
    figures = {"files_removed": 2, "files_added": 1, "bytes_removed": planned.bytes_removed}
    assert recorded.items() >= figures.items()
    [past] = facts.history.compactions()
    assert past.predicted is not None and past.seconds is not None
    assert past.predicted.seconds == round(planned.estimate.seconds, 3)
    assert 0 < past.seconds < 60
    assert session_settings(spark) == before
    _append(spark.range(10), uri)
    assert facts_of(lake, events.key).history.commits[-1].user_metadata is None


def test_a_missing_table_is_refused_and_has_no_plan(lake: Lake, spark: SparkSession) -> None:
    assert plan(lake, events) is None
    message = r"compaction: bronze/events has no table yet\. Use `lakehouse materialize bronze/events` first"
    with pytest.raises(Refused, match=message):
        compact(lake, spark, events)


def _stored_types(lake: Lake, column: str) -> set[str]:
    """How the files of the table store a column."""
    folder = Path(lake.settings.root, events.key)
    names = [file.path for file in facts_of(lake, events.key).snapshot.files]
    schemas = [pq.ParquetFile(folder / unquote(name)).schema for name in names]
    return {
        schema.column(place).physical_type
        for schema in schemas
        for place in range(len(schema))
        if schema.column(place).name == column
    }


def _append(frame: DataFrame, uri: str) -> None:
    frame.coalesce(1).write.format("delta").mode("append").save(uri)


def _content(spark: SparkSession, uri: str) -> list[str]:
    return sorted(str(row) for row in spark.read.format("delta").load(uri).collect())


def _check_as_planned(
    lake: Lake, spark: SparkSession, outcome: CompactionOutcome, *, table: Table = events
) -> None:
    """Actual is predicted, file by file, and a second compaction does nothing and says why."""
    told: dict[str, Any] = outcome.as_json()
    for figure in ("files_removed", "files_added", "bytes_removed"):
        assert told[figure] == told[f"actual_{figure}"] > 0
    facts = facts_of(lake, table.key)
    assert {path for bin_ in told["bins"] for path in bin_} == set(
        facts.history.commits[-1].removed_paths
    )
    version = version_of(lake, table.key)
    again = compact(lake, spark, table)
    assert (again.figures[0].actual, again.version_after) == (0, None)
    assert version_of(lake, table.key) == version
    assert again.plan.reason in (
        Reason.ALREADY_COMPACTED,
        Reason.NOTHING_SHARES_A_BIN,
        Reason.NOTHING_SMALL,
    )
    assert again.plan.sentence
