"""Deletes the expired rows of a table: one DELETE with a condition on the time column.

**Safety properties** (tests in `test_ttl.py`)
- The statement deletes only rows before the plan's cutoff, whatever is committed meanwhile, and is
  repeated after a conflict. It is one commit: a run that is killed has deleted all of them or none.
"""

import json
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import Refused
from lakehouse.base.operation import Figure, NetBenefit, Operation
from lakehouse.compact.verify import verify_left
from lakehouse.declare.policies import Ttl
from lakehouse.declare.prices import PriceBook
from lakehouse.declare.table import Table
from lakehouse.delta.commits import ROWS_MOVED
from lakehouse.delta.log.actions import logged_adds
from lakehouse.delta.snapshot import Column, Snapshot, TableFacts
from lakehouse.lake.lake import Lake, TableSession
from lakehouse.lake.lease import check_clock, hold
from lakehouse.retain.plan.ttl import (
    TimeBounds,
    TtlPlan,
    bounds_in_statistics,
    bounds_of_partition,
    plan_ttl,
    time_column,
)
from lakehouse.retain.run import archive
from lakehouse.retain.run.archive import RetentionOutcome, record_moved_rows
from lakehouse.spark import statements, temporary_confs
from lakehouse.spark.errors import translated
from lakehouse.spark.frames import retry_conflicts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def plan(lake: Lake, table: Table, facts: TableFacts | None = None) -> TtlPlan:
    """Plans a run now, from the log alone. Without `facts`, the table's log is read.

    Raises:
        Refused: the table declares no TTL, or does not exist; otherwise as `plan_ttl`.
    """
    declared = _ttl_of(table)
    facts = facts or lake.existing_facts(table.key, "ttl:")
    column = time_column(table, declared, facts.snapshot)
    bounds = read_bounds(lake, facts.snapshot, column)
    return plan_ttl(table, declared, facts.snapshot, bounds, now_ms=now_ms())


def run_ttl(
    lake: Lake,
    table: Table,
    open_spark: "Callable[[], SparkSession]",
    *,
    owner: str = "",
) -> RetentionOutcome:
    """Deletes the expired rows. Opens a Spark session only if there are any.

    Raises:
        Refused: the table declares no TTL, does not exist, or does not allow deletions, or this
            machine's clock is wrong.
        Transient: another process holds the table, or the statement kept conflicting.
    """
    command = f"ttl of {table.key}"
    started = time.monotonic()
    planned = plan(lake, table)
    if planned.is_idle:
        return RetentionOutcome(plan=planned)
    check_clock(lake, table.key)
    spark = open_spark()
    session = TableSession(lake=lake, spark=spark, table=table)
    with (
        translated(table.key, operation="ttl"),
        hold(lake, spark, table.key, owner=owner or command),
    ):
        verify_left(lake, lambda: spark, table.key)
        outcome = retry_conflicts(partial(_delete, session, started))
        record_moved_rows(lake, table, "ttl", outcome)
        return outcome


def _delete(session: TableSession, started: float) -> RetentionOutcome:
    lake, table = session.lake, session.table
    facts = lake.existing_facts(table.key, "ttl:")
    planned = plan(lake, table, facts)
    snapshot = facts.snapshot
    if planned.is_idle or planned.cutoff_ms is None:
        return RetentionOutcome(plan=planned)
    mark = uuid4().hex
    metadata = {ROWS_MOVED: "ttl", "mark": mark, "plan": planned.as_json()}
    column = time_column(table, _ttl_of(table), snapshot)
    confs = {
        temporary_confs.USER_METADATA: json.dumps(metadata),
        temporary_confs.ANSI: "false",
    }
    condition = statements.is_before(column, planned.cutoff_ms)
    with temporary_confs.session_confs(session.spark, confs):
        session.spark.sql(statements.delete_rows(snapshot.uri, [condition]))
    after = lake.existing_facts(table.key)
    commit = lake.history_since(after, snapshot.version).marked(mark)
    count = commit.metrics.get("numDeletedRows", "") if commit else "0"
    return RetentionOutcome(
        plan=planned,
        version_after=commit.version if commit else None,
        figures=(
            Figure("rows", planned.row_count, int(count) if count.isdigit() else None),
            Figure("seconds", planned.seconds, time.monotonic() - started),
        ),
    )


def _ttl_of(table: Table) -> Ttl:
    if table.ttl is None:
        raise Refused(
            f"ttl of {table.key}: the table declares none. Use Table(ttl=Ttl(column=…, days=…))"
        )
    return table.ttl


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
        add["path"]: bounds_in_statistics(add.get("stats"), column)
        for add in logged_adds(lake.store, snapshot.table, [snapshot.version], ("path", "stats"))
        if add["path"] in live
    }


def operation(lake: Lake, table: Table, facts: TableFacts, book: PriceBook) -> Operation:
    """What the run would do now. Its benefit is the storage of the files that expire.

    Raises as the plan of the run.
    """
    is_archive = table.archive is not None
    due = archive.plan(lake, table, facts) if is_archive else plan(lake, table, facts)
    saved_usd_per_day = book.stored_usd_per_day(due.expired_bytes)
    return Operation(
        operation="archive" if is_archive else "ttl",
        table=table.key,
        reason=due.reason.name,
        sentence=due.sentence,
        is_due=not due.is_idle,
        size_bytes=due.size_bytes,
        net_benefit=NetBenefit(benefit_usd_per_day=saved_usd_per_day, cost_usd=due.usd),
    )
