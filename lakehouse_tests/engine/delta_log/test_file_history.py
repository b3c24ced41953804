"""The story of a log, and its replay on tables that real Spark wrote."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from lakehouse.core.backtest.result import Backtest, SimulatedStep
from lakehouse.core.backtest.simulate import look, real_result, simulate_history
from lakehouse.core.compaction.plan import plan_table
from lakehouse.core.declaration.compaction_policy import (
    BinPacking,
    Compaction,
    LiquidClustering,
    policy_for,
)
from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.file_history import FileHistory
from lakehouse.core.errors import Broken, Refused
from lakehouse.core.scheduling.table_state import state_of
from lakehouse.engine.compaction.run import compact
from lakehouse.engine.delta_log.file_history import read_file_history
from lakehouse.engine.lake import Lake
from lakehouse_tests.engine.example import events
from lakehouse_tests.log_builder import LogBuilder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

type_of_checkpoint = Callable[[LogBuilder], LogBuilder]


def test_the_replay_of_the_policy_in_force_reproduces_what_the_sensor_and_spark_did(
    lake: Lake, spark: "SparkSession"
) -> None:
    """Appends and a DELETE; after each the sensor's own decision, and Spark's own OPTIMIZE where it asks for one."""
    table = replace(
        events, compaction=Compaction(min_small_files=3, target_file_bytes=8192, cooldown_minutes=0)
    )
    policy, uri = policy_for("bronze", table.compaction), lake.settings.table_uri(table.key)
    for step in range(4):
        rows = spark.range(step * 1_000, step * 1_000 + 50 * (step % 3 + 1)).selectExpr(
            "id", "CAST(id % 2 AS INT) AS half"
        )
        rows.repartition(1 + step % 2).write.format("delta").mode("append").partitionBy(
            "half"
        ).save(uri)
        _upkeep(lake, spark, table, policy)
        if step == 2:
            spark.sql(f"DELETE FROM delta.`{uri}` WHERE half = 1 AND id < 1000")
            _upkeep(lake, spark, table, policy)
    story = read_file_history(lake.store, table.key, uri=uri)
    assert story is not None and story.start is None
    real, found = real_result(story, policy), simulate_history(story, policy)
    assert len(real.runs) > 1
    assert _done(found) == _done(real)
    assert [_counts(moment) for moment in found.steps] == [_counts(moment) for moment in real.steps]
    assert (
        found.uncertainty.moved_removals,
        found.uncertainty.modelled_files,
        found.uncertainty.unclear_compactions,
    ) == (0, 0, 0)
    alone = simulate_history(story, replace(policy, mode="off"))
    assert alone.steps[-1].row_count == real.steps[-1].row_count
    assert alone.steps[-1].file_count > real.steps[-1].file_count


def _upkeep(lake: Lake, spark: "SparkSession", table: Table, policy: Compaction) -> None:
    facts = lake.facts(table.key)
    assert facts is not None
    now_ms = facts.snapshot.committed_ms
    plan = plan_table(table, facts.snapshot, facts.history, now_ms=now_ms)
    state = replace(state_of(facts.snapshot, plan), prices=table.prices)
    if look(state, plan, now_ms=now_ms).runs:
        compact(lake, spark, table)


def _done(backtest: Backtest) -> list[tuple[int, set[str], set[str], int, int]]:
    return [
        (
            moment.version,
            set(run.removed_paths),
            set(run.added_paths),
            run.bytes_removed,
            run.bytes_added,
        )
        for moment in backtest.steps
        for run in moment.runs
    ]


def _counts(moment: SimulatedStep) -> tuple[int, int, int, int, int | None]:
    return (
        moment.version,
        moment.file_count,
        moment.small_file_count,
        moment.size_bytes,
        moment.row_count,
    )


def told(log: LogBuilder) -> FileHistory:
    story = read_file_history(log.store, log.key, uri=f"/lake/{log.key}")
    assert story is not None
    return story


def test_a_commit_tells_what_it_added_and_removed_and_whether_rows_changed() -> None:
    log = (
        LogBuilder()
        .create(partition_by=["d"])
        .append([("d=1/a", 10), ("d=1/b", 20)])
        .optimize(["d=1/a", "d=1/b"], into=("d=1/c", 30))
    )
    log.set_properties(x="y").delete_rows({"d=1/c": 3})
    story = told(log)
    assert [
        (commit.operation, commit.changed_data, commit.is_compaction) for commit in story.commits
    ] == [
        ("CREATE TABLE", False, False),
        ("WRITE", True, False),
        ("OPTIMIZE", False, True),
        ("SET TBLPROPERTIES", False, False),
        ("DELETE", True, False),
    ]
    last = story.commits[-1]
    assert (
        last.removed_paths,
        [(file.path, file.deleted_row_count, file.compacted) for file in last.added],
    ) == (
        ("d=1/c",),
        [("d=1/c", 3, True)],
    )
    assert (last.shape.partition_columns, dict(last.shape.properties), last.shape.files) == (
        ("d",),
        {"x": "y"},
        (),
    )


def test_a_story_tells_by_what_the_table_was_clustered_at_each_version_also_after_its_beginning_is_gone() -> (
    None
):
    log = LogBuilder().create(features=["clustering", "domainMetadata"]).append([("a", 10)])
    log.commit("CLUSTER BY", _clustered("id")).append([("b", 10)]).set_properties(
        x="y"
    ).checkpoint()
    log.append([("c", 10)]).commit("CLUSTER BY", _clustered()).append([("d", 10)])
    by = [commit.shape.clustering_columns for commit in told(log).commits]
    assert by == [(), (), ("id",), ("id",), ("id",), ("id",), (), ()]
    assert [commit.shape.clustering_columns for commit in told(log.forget_before(5)).commits] == by[
        5:
    ]


def test_a_clustered_table_is_replayed_as_plan_plans_it() -> None:
    log = (
        LogBuilder()
        .create(features=["clustering", "domainMetadata"])
        .commit("CLUSTER BY", _clustered("id"))
    )
    for number in range(6):
        log.append([(f"f{number}", 100)])
    policy = policy_for(
        "bronze",
        Compaction(
            min_small_files=3, cooldown_minutes=0, data_layout=LiquidClustering(columns=("id",))
        ),
    )
    assert len(simulate_history(told(log), policy).runs[0].removed_paths) == 3
    with pytest.raises(
        Refused,
        match=r"which BinPacking cannot plan.*data_layout=LiquidClustering",
    ):
        simulate_history(told(log), replace(policy, data_layout=BinPacking()))


def _clustered(*columns: str) -> dict[str, Any]:
    configuration = json.dumps({"clusteringColumns": [[column] for column in columns]})
    return {
        "domainMetadata": {
            "domain": "delta.clustering",
            "configuration": configuration,
            "removed": False,
        }
    }


CHECKPOINTS: dict[str, type_of_checkpoint] = {
    "classic": lambda log: log.checkpoint(),
    "in parts": lambda log: log.checkpoint(parts=2),
    "V2": lambda log: log.checkpoint(uuid="0f1a2b3c-0000-4000-8000-000000000000", sidecars=1),
}


@pytest.mark.parametrize("checkpoint", CHECKPOINTS.values(), ids=CHECKPOINTS)
def test_a_story_without_its_beginning_starts_at_the_oldest_checkpoint_that_serves(
    checkpoint: type_of_checkpoint,
) -> None:
    log = checkpoint(
        LogBuilder().create().append([("a", 10), ("b", 20)]).optimize(["a", "b"], into=("c", 25))
    )
    log = checkpoint(log.append([("d", 5)])).append([("e", 6)])
    story = told(log.forget_before(3))
    assert story.start is not None and story.first_version == 2
    assert [(file.path, file.size_bytes) for file in story.start.files] == [("c", 25)]
    assert [commit.version for commit in story.commits] == [3, 4]
    assert told(log.forget_before(4)).first_version == 3


def test_a_gap_that_no_checkpoint_closes_is_broken() -> None:
    log = LogBuilder().create().append([("a", 10)]).append([("b", 10)]).lose(1)
    with pytest.raises(Broken):
        told(log)
    assert (
        told(
            LogBuilder().create().append([("a", 10)]).append([("b", 10)]).checkpoint().lose(1)
        ).first_version
        == 2
    )


@pytest.mark.parametrize("kept", [[], [0, 1], [1]])
def test_a_story_reaches_the_newest_version_though_only_its_checkpoint_is_left(
    kept: list[int],
) -> None:
    log = (
        LogBuilder()
        .create()
        .append([("a", 10)])
        .checkpoint()
        .append([("b", 10)])
        .append([("c", 10)])
        .checkpoint()
    )
    for version in {*range(4)} - {*kept}:
        log.lose(version)
    story = told(log)
    assert (story.first_version, story.commits) == (3, ())


def test_where_there_is_no_table_there_is_no_story() -> None:
    log = LogBuilder()
    assert read_file_history(log.store, log.key, uri="/lake/bronze/t") is None
