"""Runs the study: all arms in turn on one server.

1. A warm-up on other tables compiles what the iterations run; it does not count.
2. Each repetition makes new tables. The arms take turns of ten iterations in a changing order, so
   that other load affects all of them.
3. After each iteration, what was written is read from the table's log; this time does not count.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from benchmarks.study.arms import (
    ARMS,
    Arm,
    Stopwatch,
    gathered,
    keep_files_few,
    narrowed,
    writing_session,
)
from benchmarks.study.batches import PROPERTIES, Batch, draw_batches, frame_of, query, write_batch
from benchmarks.study.raw import Iteration, StudyPlan, StudyRun
from lakehouse.delta.commits import Commit
from lakehouse.delta.log import history_since
from lakehouse.lake.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BLOCK = 10
WARM_UP = 5

type_of_tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The lake and a session on its server."""

    lake: Lake
    spark: "SparkSession"
    tell: type_of_tell = print


def run_study(world: World, run: StudyRun, *, warm_up: int = WARM_UP) -> None:
    """Measures the plan of `run`."""
    plan, batches = run.plan, draw_batches(run.plan.rows, max(run.plan.iterations, warm_up))
    began = time.monotonic()
    bytes_per_row = _warm_up(world, [ARMS[name] for name in plan.arms], batches, warm_up)
    world.tell(f"warm-up over after {time.monotonic() - began:.0f} s; it is not counted")
    versions = dict[str, int]()
    for repetition, arm, first, last in _blocks(plan):
        key = _key(arm, repetition)
        for number in range(first, last + 1):
            version, batch = versions.get(key, -1), batches[number - 1]
            iteration = _iterate(world, arm, repetition, number, batch, bytes_per_row, version)
            run.add(iteration)
            versions[key] = iteration.version
        done = len(run.iterations) / plan.iteration_count
        world.tell(f"repetition {repetition}, iteration {last}, {arm.name}: {done:.0%} done")


def _blocks(plan: StudyPlan) -> Iterator[tuple[int, Arm, int, int]]:
    """(repetition, arm, first and last iteration) of each block."""
    for repetition in range(1, plan.repetitions + 1):
        for block, first in enumerate(range(1, plan.iterations + 1, BLOCK)):
            turn = (block + repetition - 1) % len(plan.arms)
            for name in plan.arms[turn:] + plan.arms[:turn]:
                yield repetition, ARMS[name], first, min(first + BLOCK - 1, plan.iterations)


def _key(arm: Arm, repetition: int) -> str:
    return f"silver/{arm.name}_{repetition}"


def _warm_up(world: World, arms: list[Arm], batches: list[Batch], count: int) -> float:
    """Runs some iterations of each arm; returns the bytes per row of a batch in one file."""
    for arm in arms if count else ():
        for number in (*range(1, count), max(arm.optimize_every, count)):
            _iterate(world, arm, 0, number, batches[min(number, count) - 1], 0.0, -1)
    key = "silver/one_file"
    write_batch(
        world.spark,
        world.lake.settings.table_uri(key),
        frame_of(world.spark, batches[0], tasks=1),
        PROPERTIES,
        is_first=True,
    )
    facts = world.lake.facts(key)
    assert facts.snapshot.file_count == 1
    return facts.snapshot.size_bytes / batches[0].row_count


def _iterate(
    world: World,
    arm: Arm,
    repetition: int,
    number: int,
    batch: Batch,
    bytes_per_row: float,
    version: int,
) -> Iteration:
    """Runs one iteration on a table at `version` (-1: it does not exist yet)."""
    lake, spark, key = world.lake, world.spark, _key(arm, repetition)
    table, uri, decision = arm.table(key), lake.settings.table_uri(key), Stopwatch()
    merge, query_watch, began = Stopwatch(), Stopwatch(), datetime.now(UTC)
    with (
        merge.running(),
        writing_session(lake, spark, arm, table, batch.row_count, decision) as there,
    ):
        rows, within = narrowed(
            gathered(arm, frame_of(spark, batch)), batch.row_count * bytes_per_row, there
        )
        write_batch(
            spark, uri, rows, {**PROPERTIES, **arm.properties}, is_first=number == 1, within=within
        )
        del rows  # rows that were kept end here
    before_write = decision.seconds
    with query_watch.running():
        query(spark, uri)
    upkeep_seconds = keep_files_few(lake, spark, arm, table, number, decision)
    facts = lake.facts(key)
    commits = history_since(lake.store, facts.history, version).commits
    return Iteration(
        arm=arm.name,
        repetition=repetition,
        number=number,
        rows=batch.row_count,
        merge_seconds=merge.seconds - before_write,
        query_seconds=query_watch.seconds,
        upkeep_seconds=upkeep_seconds,
        decision_seconds=decision.seconds,
        files=facts.snapshot.file_count,
        version=facts.snapshot.version,
        table_bytes=facts.snapshot.size_bytes,
        bytes_ingested=round(batch.row_count * bytes_per_row),
        bytes_copied=sum(map(_bytes_copied, commits)),
        bytes_compacted=sum(commit.added_bytes for commit in commits if not commit.changed_data),
        compactions=sum(
            bool(commit.removed_paths) and not commit.changed_data for commit in commits
        ),
        began=f"{began:%Y-%m-%d %H:%M:%S}",
    )


def _bytes_copied(commit: Commit) -> int:
    """The bytes of a merge that hold unchanged rows of touched files."""
    copied, new = (
        sum(int(commit.metrics.get(name, "0")) for name in names)
        for names in (("numTargetRowsCopied",), ("numTargetRowsInserted", "numTargetRowsUpdated"))
    )
    return (
        round(commit.added_bytes * copied / (copied + new))
        if commit.operation == "MERGE" and copied
        else 0
    )
