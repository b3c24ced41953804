"""Runs the study: the arms in blocks of iterations, in turn, on one server.

1. A warm-up compiles what the iterations run; it is on tables of its own, and not counted.
2. Each repetition makes fresh tables. Each arm does ten iterations, then the next arm does, so that whatever else the machine does falls on
   all of them; who begins changes from block to block.
3. After each iteration the table's log tells what was written; reading it is nobody's time.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
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
from benchmarks.study.raw import Iteration, StudyPlan, StudyRun, take_back
from lakehouse.core.delta.commits import Commit
from lakehouse.engine.clock import now_ms
from lakehouse.engine.delta_log import history_since
from lakehouse.engine.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BLOCK = 10
WARM_UP = 5

type_of_tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The lake, a session on its server, and how many requests its storage was asked since the last call.

    `read_ms` are the times of each table's queries.
    """

    lake: Lake
    spark: "SparkSession"
    count_requests: Callable[[], int] | None = None
    tell: type_of_tell = print
    read_ms: dict[str, list[int]] = field(default_factory=lambda: defaultdict[str, list[int]](list))


@dataclass(slots=True, kw_only=True)
class _Phases:
    """Seconds and requests of each phase of an iteration."""

    count_requests: Callable[[], int] | None
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    requests: dict[str, int] = field(default_factory=dict[str, int])

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        if self.count_requests:
            self.count_requests()  # what was asked outside of the phases is nobody's
        began = time.monotonic()
        yield
        self.seconds[name] = time.monotonic() - began
        if self.count_requests:
            self.requests[name] = self.count_requests()


def run_study(world: World, run: StudyRun, *, warm_up: int = WARM_UP) -> None:
    """Measures what the plan of `run` asks for and is not there yet."""
    plan, batches = run.plan, draw_batches(run.plan.rows, max(run.plan.iterations, warm_up))
    arms = [ARMS[name] for name in plan.arms]
    done = _versions_of(run)
    began = time.monotonic()
    bytes_per_row = _warm_up(world, arms, batches, warm_up)
    world.tell(f"warm-up over after {time.monotonic() - began:.0f} s; it is not counted")
    progress, opened = _Progress(plan, sum(len(versions) for versions in done.values())), set[str]()
    for repetition, arm, upto in _blocks(plan):
        versions, key = done.setdefault((repetition, arm.name), []), _key(arm, repetition)
        if len(versions) >= upto:
            continue
        if key not in opened:
            _take_back(world.lake, key, versions[-1] if versions else None)
            opened.add(key)
        for number in range(len(versions) + 1, upto + 1):
            iteration = _iterate(
                world,
                arm,
                repetition,
                number,
                batches[number - 1],
                bytes_per_row,
                versions[-1] if versions else -1,
            )
            run.add(iteration)
            versions.append(iteration.version)
            progress.add(iteration)
        world.tell(progress.sentence(arm, repetition, upto))


def _blocks(plan: StudyPlan) -> Iterator[tuple[int, Arm, int]]:
    """Each block: the repetition, the arm, and the block's last iteration."""
    for repetition in range(1, plan.repetitions + 1):
        for block, first in enumerate(range(1, plan.iterations + 1, BLOCK)):
            turn = (block + repetition - 1) % len(plan.arms)
            for name in plan.arms[turn:] + plan.arms[:turn]:
                yield repetition, ARMS[name], min(first + BLOCK - 1, plan.iterations)


def _versions_of(run: StudyRun) -> dict[tuple[int, str], list[int]]:
    """The version of each table after each iteration that was measured before."""
    versions: dict[tuple[int, str], list[int]] = {}
    for each in run.iterations:
        versions.setdefault((each.repetition, each.arm), []).append(each.version)
    return versions


def _key(arm: Arm, repetition: int) -> str:
    return f"silver/{arm.name}_{repetition}"


def _take_back(lake: Lake, key: str, version: int | None) -> None:
    """What an interrupted run wrote after `version` goes; a lake on S3 is always fresh."""
    if not lake.settings.on_s3:
        take_back(Path(lake.settings.table_uri(key)), version)


def _warm_up(world: World, arms: list[Arm], batches: list[Batch], count: int) -> float:
    """Some iterations of each arm, the last of them with its OPTIMIZE; the bytes that a row of a batch takes in one file."""
    for arm in arms if count else ():
        _take_back(world.lake, _key(arm, 0), None)
        for number in (*range(1, count), max(arm.optimize_every, count)):
            _iterate(world, arm, 0, number, batches[min(number, count) - 1], 0.0, -1)
    key = "silver/one_file"
    if (facts := world.lake.facts(key)) is None:
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
    """One iteration on a table that is at `version`, -1 where there is none yet."""
    lake, spark, key = world.lake, world.spark, _key(arm, repetition)
    table, uri, decision = arm.table(key), lake.settings.table_uri(key), Stopwatch()
    phases, began = _Phases(count_requests=world.count_requests), datetime.now(UTC)
    with (
        phases.phase("merge"),
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
    with phases.phase("query"):
        query(spark, uri)
        world.read_ms[key].append(now_ms())
    with phases.phase("upkeep"):
        upkeep_seconds = keep_files_few(
            lake, spark, arm, table, number, decision, world.read_ms[key]
        )
    facts = lake.facts(key)
    commits = history_since(lake.store, facts.history, version).commits
    return Iteration(
        arm=arm.name,
        repetition=repetition,
        number=number,
        rows=batch.row_count,
        merge_seconds=phases.seconds["merge"] - before_write,
        query_seconds=phases.seconds["query"],
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
        requests=phases.requests,
    )


def _bytes_copied(commit: Commit) -> int:
    """The share of a merge's bytes that holds rows of files that it touched, and did not change."""
    copied, new = (
        sum(int(commit.metrics.get(name, "0")) for name in names)
        for names in (("numTargetRowsCopied",), ("numTargetRowsInserted", "numTargetRowsUpdated"))
    )
    return (
        round(commit.added_bytes * copied / (copied + new))
        if commit.operation == "MERGE" and copied
        else 0
    )


class _Progress:
    """How far the study is, and about how long the rest will take: each arm goes on as in its last block."""

    def __init__(self, plan: StudyPlan, done: int) -> None:
        self._plan, self._done, self._newest = plan, done, dict[str, list[Iteration]]()

    def add(self, iteration: Iteration) -> None:
        self._done += 1
        self._newest[iteration.arm] = [*self._newest.get(iteration.arm, [])[1 - BLOCK :], iteration]

    def sentence(self, arm: Arm, repetition: int, upto: int) -> str:
        newest, plan = self._newest.get(arm.name), self._plan
        if not newest:
            return f"repetition {repetition}, iterations up to {upto}, {arm.name}: measured before"
        each = _mean_seconds({arm.name: newest})
        left = (plan.iteration_count - self._done) * _mean_seconds(self._newest)
        return (
            f"repetition {repetition} of {plan.repetitions}, iteration {upto} of {plan.iterations}, {arm.name}: {each:.2f} s an iteration, "
            f"{newest[-1].files} files; {self._done / plan.iteration_count:.0%} done, about {left / 60:.0f} min left"
        )


def _mean_seconds(newest: Mapping[str, list[Iteration]]) -> float:
    seconds = [each.seconds for iterations in newest.values() for each in iterations]
    return sum(seconds) / len(seconds)
