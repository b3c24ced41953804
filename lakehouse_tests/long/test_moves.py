"""A landed table on S3 moves to another key, with what reads it; and one of change data with its remembered deletions."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lakehouse import Debezium, Landing, Merge, Table
from lakehouse.core.reasons import Reason
from lakehouse.core.settings import Settings
from lakehouse.engine.evolution.move_facts import plan_move
from lakehouse.engine.evolution.move_table import run_move
from lakehouse.engine.ingest.write import write_table
from lakehouse.engine.lake import TableSession, open_lake
from lakehouse.engine.spark.open_session import connect
from lakehouse_tests.engine.example import copies, event, events, facts_of, land, rows_of, states
from lakehouse_tests.long.test_move_table import (
    DECLARED,
    NEW,
    OLD,
    copies_now,
    moved,
    states_now,
)
from lakehouse_tests.s3_servers import lake_on_s3


@pytest.fixture(scope="module")
def on_s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Settings of a lake in a bucket of its own, with its own server."""
    with lake_on_s3("moto", tmp_path_factory.mktemp("s3")) as settings:
        yield settings


def test_a_landed_table_on_s3_and_its_readers_go_on(on_s3: Settings) -> None:
    lake, spark = open_lake(on_s3), connect(on_s3)
    for number in range(2):
        land(lake, f"{number}.json", [event(number, 5, "planned"), "nope"])
        for each in (events, states, copies):
            write_table(lake, spark, each)
    rows = rows_of(spark, lake, OLD, "id", "state", "_source_file")
    session = TableSession(lake=lake, spark=spark, table=moved)
    plan = plan_move(lake, moved, DECLARED)
    assert plan is not None and plan.on_s3
    outcome = run_move(session, plan, DECLARED)
    assert outcome.count == plan.count + plan.added_count - 1
    assert outcome.requests > plan.requests  # of small tables, most are of locks and records
    assert [file.name for file in lake.store.list(OLD)] == []
    assert rows_of(spark, lake, NEW, "id", "state", "_source_file") == rows
    first = spark.read.format("delta").option("versionAsOf", 0).load(lake.table_uri(NEW))
    assert [row.id for row in first.collect()] == [0]

    land(lake, "2.json", [event(2, 5, "planned"), "nope"])
    outcomes = [write_table(lake, spark, each) for each in (moved, states_now, copies_now)]
    assert [(each.reason, each.rows_written) for each in outcomes] == [
        (Reason.BATCH_READY, 1),
        (Reason.INPUTS_CHANGED, 1),
        (Reason.INPUTS_CHANGED, 1),
    ]
    assert rows_of(spark, lake, copies.key, "id") == [(0,), (1,), (2,)]
    assert facts_of(lake, f"quarantine/{NEW}").snapshot.row_count == 3


def test_late_changes_of_a_moved_table_do_not_bring_deleted_rows_back(
    on_s3: Settings, tmp_path: Path
) -> None:
    lake, spark = open_lake(on_s3), connect(on_s3)
    source = Landing(
        prefix="landing/part/", format="json", schema="id BIGINT, v STRING", changes=Debezium()
    )
    part = Table(key="bronze/part", source=source, write=Merge(keys=("id",)))
    parts = replace(part, key="bronze/parts", formerly="bronze/part")

    def change(op: str, id_: int, lsn: int) -> str:
        row = f'{{"id": {id_}, "v": "{lsn}"}}'
        images = f'"before": {row}, "after": null' if op == "d" else f'"after": {row}'
        return f'{{"op": "{op}", {images}, "source": {{"lsn": {lsn}, "ts_ms": {lsn}}}}}'

    land(lake, "1.json", [change("c", 1, 1), change("c", 2, 2)], prefix=source.prefix)
    write_table(lake, spark, part)
    land(lake, "2.json", [change("d", 1, 9)], prefix=source.prefix)
    write_table(lake, spark, part)
    plan = plan_move(lake, parts, [parts])
    assert plan is not None
    run_move(TableSession(lake=lake, spark=spark, table=parts), plan, [parts])
    land(lake, "3.json", [change("u", 1, 5), change("u", 2, 5)], prefix=source.prefix)
    write_table(lake, spark, parts)
    assert rows_of(spark, lake, parts.key, "id", "v") == [(2, "5")]
