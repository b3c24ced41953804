"""The replay of a policy against what real Spark did."""

from dataclasses import replace
from typing import TYPE_CHECKING

from lakehouse.core.backtest.result import Backtest, SimulatedStep
from lakehouse.core.backtest.simulate import decide, real_result, simulate_history
from lakehouse.core.compaction.plan import plan_table
from lakehouse.core.declaration.compaction_policy import (
    Compaction,
    policy_for,
)
from lakehouse.core.declaration.table import Table
from lakehouse.core.scheduling.table_state import state_of
from lakehouse.engine.compaction.run import compact
from lakehouse.engine.delta_log.file_history import read_file_history
from lakehouse.engine.lake import Lake
from lakehouse_tests.engine.example import events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    if decide(state, plan, now_ms=now_ms).runs:
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
