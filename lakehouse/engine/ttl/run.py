"""Deletes the expired rows of a table.

1. The plan is made from the log. If the plan has no steps, the run ends.
2. The table's lock is taken. A compaction that was not verified is verified now. The plan is made
   again. Rows before the cutoff of this second plan are deleted.
3. Each step is one DELETE, whose commit carries the plan's figures and the cutoff. If a step
   removed whole partitions without a condition on the time column, its commit is compared with
   the plan.
4. The outcome compares the predicted number of rows with the number that the commits record.

**Safety properties** (tests in `test_run.py`)
- Every DELETE that reads rows has a condition on the time column, so it deletes only rows before
  the cutoff, whatever is committed meanwhile.
- A step that removes whole partitions without such a condition is not started if another writer
  added a file to one of them after the plan was made, and is not repeated after a conflict. Delta
  may still remove a file that was added at the last moment. In that case, the run stops with
  `Broken`, which names the version to restore.
- Each commit is complete by itself. If a run is killed after a commit, the next run continues.
"""

import json
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

from lakehouse.core.costs.compaction_speed import fit_rates
from lakehouse.core.declaration.archive import Ttl
from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.commits import ROWS_MOVED, Commits
from lakehouse.core.delta.partition_values import by_name, typed_partition
from lakehouse.core.delta.snapshot import Column, Snapshot, TableFacts
from lakehouse.core.errors import Broken, Refused, Transient
from lakehouse.core.ttl.facts import (
    TimeBounds,
    TtlFacts,
    bounds_in_statistics,
    bounds_of_partition,
)
from lakehouse.core.ttl.outcome import TtlOutcome
from lakehouse.core.ttl.plan import TtlPlan, plan_ttl, time_column
from lakehouse.core.ttl.steps import TtlStep
from lakehouse.engine.clock import check_clock, now_ms
from lakehouse.engine.compaction.verify import verify_left
from lakehouse.engine.delta_log import history_since
from lakehouse.engine.delta_log.statistics import each_statistics
from lakehouse.engine.lake import Lake, TableSession
from lakehouse.engine.retry_conflicts import retry_conflicts
from lakehouse.engine.spark import statements, temporary_confs
from lakehouse.engine.spark.errors import translated
from lakehouse.engine.table_lock import hold

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TRIES = 4


def plan(lake: Lake, table: Table) -> TtlPlan | None:
    """Plans a run now, from the log alone; `None` if there is no table.

    Raises:
        Refused: the table declares no TTL; otherwise as `plan_ttl`.
    """
    declared = _ttl_of(table)
    facts = lake.facts(table.key)
    return None if facts is None else _plan(lake, table, declared, facts)


def run(
    lake: Lake,
    open_spark: "Callable[[], SparkSession]",
    table: Table,
    *,
    owner: str | None = None,
) -> TtlOutcome:
    """Deletes the expired rows. Opens a Spark session only if there are any.

    Raises:
        Refused: the table declares no TTL, does not exist, or does not allow deletions; a commit of
            another writer could be lost; or this machine's clock is wrong.
        Transient: another process holds the table, a step conflicted with other writers, or the
            server is unavailable. The next run continues.
        Broken: a step removed a file that its plan does not name.
    """
    command = f"TTL of {table.key}"
    started = time.monotonic()
    planned = plan(lake, table)
    if planned is None:
        raise Refused(
            f"{command}: there is no table yet. Use lakehouse materialize {table.key} first"
        )
    if not planned.steps:
        return TtlOutcome(plan=planned, commits=(), seconds=0.0, prices=table.prices)
    check_clock(lake, table.key)
    spark = open_spark()
    session = TableSession(lake=lake, spark=spark, table=table)
    with (
        translated(table.key, operation="TTL"),
        hold(lake, spark, table.key, owner=owner or command),
    ):
        verify_left(lake, spark, table.key)
        facts = lake.facts(table.key)
        assert facts is not None
        planned = _plan(lake, table, _ttl_of(table), facts)
        mark = uuid4().hex  # identifies the commits of this run
        with temporary_confs.session_confs(spark, temporary_confs.READ_WHOLE):
            for step in planned.steps:
                # A step that removes whole partitions is not repeated after a conflict, because it
                # could then remove rows that the other writer added.
                tries = 1 if _removes_partitions(step) else _TRIES
                retry_conflicts(partial(_carry_out, session, planned, step, mark), tries=tries)
        commits = _commits_of(lake, facts.snapshot, mark)
        return TtlOutcome(
            plan=planned,
            commits=commits.commits,
            seconds=time.monotonic() - started,
            prices=table.prices,
        )


def _ttl_of(table: Table) -> Ttl:
    if table.ttl is None:
        raise Refused(
            f"TTL of {table.key}: the table declares no TTL. Use Table(ttl=Ttl(column=…, days=…))"
        )
    return table.ttl


def _plan(lake: Lake, table: Table, declared: Ttl, facts: TableFacts) -> TtlPlan:
    column = time_column(table, declared, facts.snapshot)
    return plan_ttl(
        table,
        declared,
        TtlFacts(snapshot=facts.snapshot, bounds=read_bounds(lake, facts.snapshot, column)),
        rates=fit_rates(facts.history, facts.snapshot, prices=table.prices),
        now_ms=now_ms(),
    )


def read_bounds(lake: Lake, snapshot: Snapshot, column: Column) -> dict[str, TimeBounds]:
    """The bounds of a time column in each live file, by the file's path.

    Files without statistics in the log are omitted. Under column mapping, statistics have physical
    column names and are not read. The result is empty, except for a partition column.
    """
    if column.name in snapshot.partition_columns:
        return {file.path: bounds_of_partition(file, column) for file in snapshot.files}
    if snapshot.properties.get("delta.columnMapping.mode", "none") != "none":
        return {}
    live = {file.path for file in snapshot.files}
    return {
        path: bounds_in_statistics(text, column)
        for path, text in each_statistics(lake.store, snapshot.table, snapshot.version)
        if path in live
    }


def _carry_out(session: TableSession, planned: TtlPlan, step: TtlStep, mark: str) -> None:
    """Runs one step; checks its commit if it removed partitions (`_removes_partitions`)."""
    lake = session.lake
    key = session.key
    facts = lake.facts(key)
    assert facts is not None and planned.cutoff_ms is not None
    snapshot = facts.snapshot
    if _removes_partitions(step):
        _check_unchanged(snapshot, step)
    conditions = list[str]()
    if step.partitions is not None:
        conditions.append(statements.partition_predicate(snapshot.columns, step.partitions))
    if not _removes_partitions(step):
        column = next(each for each in snapshot.columns if each.name == planned.column)
        conditions.append(statements.is_before(column, planned.cutoff_ms))
    metadata = {
        ROWS_MOVED: "ttl",
        "mark": mark,
        "started_ms": now_ms(),
        "cutoff_ms": planned.cutoff_ms,
        "plan": planned.figures,
    }
    confs = {
        temporary_confs.USER_METADATA: json.dumps(metadata, separators=(",", ":")),
        temporary_confs.ANSI: "false",
    }
    with temporary_confs.session_confs(session.spark, confs):
        session.spark.sql(statements.delete_rows(snapshot.uri, conditions))
    if not _removes_partitions(step):
        return
    # The commits of this step: `snapshot` already contains those of earlier steps.
    for commit in _commits_of(lake, snapshot, mark).commits:
        unplanned = {*commit.removed_paths} - step.files
        if unplanned:
            raise Broken(
                f"TTL of {key}: version {commit.version} removed {min(unplanned)}, which another "
                f"writer added while the rows before the cutoff were deleted. To bring back the "
                f"rows of this file, use RESTORE TABLE {statements.path_table(snapshot.uri)} TO "
                f"VERSION AS OF {commit.version - 1}, unless there are newer versions. In that "
                f"case, append the file's rows from version {commit.version - 1}"
            )


def _removes_partitions(step: TtlStep) -> bool:
    """Whether the step removes whole partitions, without a condition on the time column."""
    return step.by_metadata and step.partitions is not None


def _check_unchanged(snapshot: Snapshot, step: TtlStep) -> None:
    """Raises `Transient` if another writer added files to the partitions that the step removes."""
    columns = by_name(snapshot.columns)
    removed = {typed_partition(each, columns) for each in step.partitions or ()}
    for file in snapshot.files:
        if file.path not in step.files and typed_partition(file.partition, columns) in removed:
            raise Transient(
                f"TTL of {snapshot.table}: another writer added {file.path} after the plan was "
                "made, so its partition was not removed. Run it again for a new plan"
            )


def _commits_of(lake: Lake, snapshot: Snapshot, mark: str) -> Commits:
    """The commits after `snapshot` whose userMetadata contains the run's mark."""
    facts = lake.facts(snapshot.table)
    assert facts is not None
    commits = history_since(lake.store, facts.history, snapshot.version)
    return Commits(table=snapshot.table, commits=commits.marked(mark))
