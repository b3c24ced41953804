"""One compaction: plan, OPTIMIZE by Spark or deltalake, verify, and compare with the plan.

1. The table's lock is taken. A commit that an earlier run did not verify is verified now.
2. The plan is made from the log. If there is nothing to do, the compaction ends here.
3. A note in the lake records that a commit must be verified. OPTIMIZE runs on the plan's
   partitions, with the plan's file sizes, and writes the plan's figures into its commit. If
   deltalake cannot rewrite the files and `engine="auto"` is declared, Spark runs the same plan.
4. OPTIMIZE fails if another writer removed a planned file first. The wasted work is recorded, and
   steps 2 and 3 are repeated, at most twice, without the partitions in which the other writer
   removed files.
5. The log is read again, to see which files were actually removed and added.
6. The rows of the removed files and of the added files are compared (`verify`).

**Safety properties**
- Only the OPTIMIZE of Delta or deltalake replaces files. Its commit changes no data and deletes
  nothing from storage (`test_run.py`).
- If the rows differ, the compaction is undone, unless another writer has committed since. In both
  cases `Broken` is raised (`test_verify.py`).
- This also holds if the run is killed between its commit and step 6: the next compaction first
  verifies the commit that the note names (`test_unverified_commits.py`).
"""

import contextlib
import json
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal
from uuid import uuid4

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import LakehouseError, Refused, Transient
from lakehouse.base.operation import UpkeepOperation
from lakehouse.compact.assess import plan_now, recent_compactions
from lakehouse.compact.plan.compaction import CompactionPlan, partitions_removed_from
from lakehouse.compact.plan.estimate import speed_factors
from lakehouse.compact.plan.history import CompactionOutcome, account_for, operation_of
from lakehouse.compact.verify import expect_verification, settled, verify, verify_left
from lakehouse.declare.table import Table
from lakehouse.delta.commits import Commit, engine_of
from lakehouse.delta.log import TableFacts
from lakehouse.delta.snapshot import PartitionValues, Snapshot
from lakehouse.lake.commits import refuse_unsafe_commits, with_due_checkpoint
from lakehouse.lake.lake import Lake
from lakehouse.lake.lease import hold
from lakehouse.lake.state_tables import ended_operation, record_if_possible
from lakehouse.spark import statements, temporary_confs
from lakehouse.spark.errors import first_line, is_conflict, is_lost, translated
from lakehouse.spark.frames import retry_conflicts
from lakehouse.spark.session import prepare_session, task_slots

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TRIES = 3
_LOG = logging.getLogger(__name__)


def plan(lake: Lake, table: Table) -> CompactionPlan | None:
    """The plan of a compaction now, made from the log alone; `None` if there is no table."""
    facts = lake.facts(table.key)
    return None if facts is None else plan_now(lake, table, facts)


def compact(
    lake: Lake,
    spark: "SparkSession | Callable[[], SparkSession]",
    table: Table,
    *,
    owner: str | None = None,
    by_person: bool = False,
) -> CompactionOutcome:
    """Compacts a table; a plan that does nothing is not an error. `owner` names the run.

    What was committed, failed or lost a conflict is added to the lake's operations.

    `spark` may be a function; it is called only if Spark compacts the table. The circuit breaker
    counts a failure, unless a person requested the run (`by_person`).

    Raises:
        Refused: there is no table yet, OPTIMIZE cannot be planned for one of its features, or a
            commit of another writer could be lost.
        Transient: another process holds the table, all attempts lost to other writers, or the
            server does not answer.
        Broken: the rows after the compaction differ from the rows before it.
    """
    attempt = Attempt(
        lake=lake,
        table=table,
        run=owner or uuid4().hex,
        by_person=by_person,
        open_spark=spark if callable(spark) else lambda: spark,
    )
    with (
        failure_recorded(attempt),
        translated(table.key, operation="compaction"),
        hold(lake, None, table.key, owner=owner or f"compaction of {table.key}"),
    ):
        verify_left(lake, attempt.session, table.key)
        outcome = retry_conflicts(partial(_compact, attempt), tries=_TRIES)
    entry = outcome.entry
    if entry is None:
        return outcome
    engine = entry.compaction.engine
    factors = speed_factors(outcome.facts.history.compactions(), engine)
    operation = replace(
        operation_of(table.key, entry, table.prices),
        run=attempt.run,
        by_person=by_person,
        detail={"speed_factors": {engine: round(factors[-1], 4)} if factors else {}},
    )
    record_if_possible(lake, operation)
    return outcome


@dataclass(slots=True, kw_only=True)
class Attempt:
    """A table to compact, and the progress.

    - `run` names the run that compacts.
    - `started` and `planned` describe the last statement.
    - `conflicts` are the statements that lost a conflict, and `contested` are the partitions in
      which other writers then removed files.
    """

    lake: Lake
    table: Table
    run: str
    open_spark: "Callable[[], SparkSession]"
    by_person: bool = False
    started: float = field(default_factory=time.monotonic)
    planned: CompactionPlan | None = None
    conflicts: list[UpkeepOperation] = field(default_factory=list[UpkeepOperation])
    contested: frozenset[PartitionValues] = frozenset()

    def session(self) -> "SparkSession":
        """Opens a session whose commits are safe."""
        spark = prepare_session(self.open_spark())
        refuse_unsafe_commits(
            self.lake, spark, self.table.key, asked=f"compaction of {self.table.key}"
        )
        return spark

    def record(self, result: Literal["failed", "conflict"], why: str) -> UpkeepOperation:
        """Records that the last statement failed, or lost a conflict, in the lake's operations."""
        operation = ended_operation(
            self.table,
            "compaction",
            time.monotonic() - self.started,
            operation_id=uuid4().hex,
            result=result,
            why=why,
            run=self.run,
            by_person=self.by_person,
            detail={"bytes_rewritten": self.planned.bytes_removed if self.planned else 0},
        )
        record_if_possible(self.lake, operation)
        return operation


def _compact(attempt: Attempt) -> CompactionOutcome:
    """Runs steps 2 to 6 once."""
    lake = attempt.lake
    table = attempt.table
    facts = lake.existing_facts(table.key, "compaction:")
    planned = _plan(attempt, facts)
    if not planned.bins:
        return _outcome(attempt, planned, None, facts)
    mark = uuid4().hex  # identifies the commit of this OPTIMIZE in the log
    seconds = _optimize(attempt, facts.snapshot, planned, mark)
    started = time.monotonic()
    after = _facts_since(lake, table, facts.snapshot.version)
    commit = after.history.marked(mark)
    compared = None
    with settled(lake, table.key, mark):
        if commit is not None:
            compared = verify(lake, attempt.session, facts.snapshot, after.snapshot, commit)
    if commit is not None and engine_of(commit) == "deltalake":
        after = with_due_checkpoint(lake, after)
    return replace(
        _outcome(attempt, planned, commit, after),
        compared=compared,
        seconds_optimize=seconds,
        seconds_verify=time.monotonic() - started,
    )


def _optimize(attempt: Attempt, snapshot: Snapshot, planned: CompactionPlan, mark: str) -> float:
    """Runs steps 3 and 4, and returns the seconds of the statement.

    Raises:
        Exception: the statement's own error. Nothing was committed after a conflict.
    """
    lake = attempt.lake
    spark = attempt.session() if planned.engine == "spark" else None
    expect_verification(lake, attempt.table.key, mark, version=snapshot.version)
    attempt.started = time.monotonic()
    attempt.planned = planned
    figures = {name: value for name, value in planned.as_json().items() if name != "bins"}
    metadata = {"compaction": mark, "started_ms": now_ms(), "plan": figures}
    try:
        user_metadata = json.dumps(metadata)
        _run(attempt, spark, snapshot, planned, user_metadata)
    except Exception as error:
        if is_conflict(error):
            attempt.conflicts.append(attempt.record("conflict", first_line(error)))
            after = _facts_since(lake, attempt.table, snapshot.version)
            new_commits = after.history.between(snapshot.version, after.snapshot.version) or ()
            attempt.contested |= partitions_removed_from(snapshot, new_commits)
        raise
    return time.monotonic() - attempt.started


def _run(
    attempt: Attempt,
    spark: "SparkSession | None",
    snapshot: Snapshot,
    planned: CompactionPlan,
    user_metadata: str,
) -> None:
    """Runs the plan by its engine. With `engine="auto"`, Spark runs what deltalake cannot."""
    lake = attempt.lake
    if spark is None:
        from lakehouse.compact.deltalake_run import UnreadableFileError, compact_by_deltalake

        try:
            compact_by_deltalake(lake, snapshot, planned, user_metadata)
            return
        except UnreadableFileError as error:
            if attempt.table.compaction.engine == "deltalake":
                raise
            _LOG.warning("%s. Spark compacts the table instead", error)
        spark = attempt.session()
    run_statement(spark, snapshot, planned, user_metadata)


def _facts_since(lake: Lake, table: Table, version: int) -> TableFacts:
    """The current facts, with every commit after `version`, however many there are."""
    facts = lake.existing_facts(table.key)
    if facts.history.commits and facts.history.commits[0].version <= version + 1:
        return facts
    return replace(facts, history=lake.history_since(facts, version))


def _plan(attempt: Attempt, facts: TableFacts) -> CompactionPlan:
    """The current plan, without the partitions in which earlier attempts lost to other writers.

    If there is nothing to compact in any other partition, the plan includes them again.
    """
    lake = attempt.lake
    table = attempt.table
    contested = attempt.contested
    whole_plan = plan_now(lake, table, facts)
    if not contested:
        return whole_plan
    snapshot = facts.snapshot
    files = [file for file in snapshot.files if file.partition not in contested]
    rest = replace(facts, snapshot=replace(snapshot, files=files))
    reduced_plan = plan_now(lake, table, rest)
    if not reduced_plan.bins:
        return whole_plan
    explanation = reduced_plan.explanation
    more = f"{explanation.more}; without partitions in which other writers removed files"
    return replace(
        reduced_plan,
        explanation=replace(explanation, more=more),
        files_left=whole_plan.mergeable_file_count - reduced_plan.files_removed,
    )


def _outcome(
    attempt: Attempt, planned: CompactionPlan, commit: Commit | None, facts: TableFacts
) -> CompactionOutcome:
    """The outcome of a plan and its `commit`, which `facts` include."""
    conflicts = attempt.conflicts
    account = None
    entry = None
    if commit is not None:
        table = attempt.table
        compactions = list[UpkeepOperation]()
        # Unreadable operations must not fail a compaction that has succeeded.
        with contextlib.suppress(LakehouseError):
            compactions = recent_compactions(attempt.lake, table.key)
        on_s3 = facts.snapshot.on_s3
        account = account_for(facts.history, compactions, prices=table.prices, on_s3=on_s3)
        entries = (each for each in account.entries if each.compaction.version == commit.version)
        entry = next(entries, None)
    return CompactionOutcome(
        plan=planned,
        entry=entry,
        account=account,
        conflicts=len(conflicts),
        wasted_bytes=sum(each.wasted_bytes for each in conflicts),
        wasted_seconds=sum(each.seconds or 0.0 for each in conflicts),
        facts=facts,
    )


@contextlib.contextmanager
def failure_recorded(attempt: Attempt) -> Iterator[None]:
    """Records an error in the block as a failure of the table.

    Errors of the caller (`Refused`) or the server (`Transient`, a lost server) are not recorded.
    Neither are conflicts, which are recorded with their cost. There is one exception: if the server
    is lost after the statement began, the statement may have crashed it. This counts as a failure
    of the table.
    """
    try:
        yield
    except Exception as error:
        is_of_table = not (isinstance(error, Refused | Transient) or is_conflict(error))
        if is_lost(error):
            is_of_table = attempt.planned is not None
        if is_of_table:
            why = str(error) if isinstance(error, LakehouseError) else first_line(error)
            attempt.record("failed", why)
        raise


def run_statement(
    spark: "SparkSession", snapshot: Snapshot, planned: CompactionPlan, user_metadata: str
) -> None:
    """Runs the plan's statement. Its commit contains `user_metadata`."""
    predicate = None
    if planned.partitions is not None:
        predicate = statements.partition_predicate(snapshot.columns, planned.partitions)
    confs = {
        temporary_confs.UP_TO: str(planned.statement.up_to_bytes),
        temporary_confs.COMMITTED_BYTES: str(2**62),  # no limit, so that there is one commit
        temporary_confs.RECORDS_PER_FILE: "0",  # no limit, so that a bin becomes one file
        temporary_confs.USER_METADATA: user_metadata,
    }
    if snapshot.partition_columns:
        # A partition value that cannot be cast to its column's type becomes null, not an error. On
        # other tables, this setting would only make the rewrite slower, by 3 %.
        confs[temporary_confs.ANSI] = "false"
    if planned.statement.kind == "packing":
        confs |= {
            temporary_confs.SMALLER_THAN: str(planned.statement.smaller_than_bytes),
            # Large files with deleted rows are left to a purge.
            temporary_confs.DELETED_ROWS: "1.0",
            **_confs_for_idle_cores(spark, planned),
        }
    columns = planned.statement.columns
    statement = statements.optimize(snapshot.uri, predicate, zorder_by=columns)
    if planned.statement.kind == "purge":
        statement = statements.purge(snapshot.uri, predicate)
    with temporary_confs.session_confs(spark, confs):
        spark.sql(statement)


def _confs_for_idle_cores(spark: "SparkSession", planned: CompactionPlan) -> dict[str, str]:
    """Settings with which several cores read each bin, if the plan has fewer bins than cores.

    By default, one core reads each bin. Only for small files does opening them take longer than the
    shuffle that several readers of a bin need.
    """
    has_small_files = planned.bytes_removed < temporary_confs.OPEN_BYTES * planned.files_removed
    if not has_small_files or len(planned.bins) >= task_slots(spark):
        return {}
    return {
        temporary_confs.READ_BIN_IN_PARALLEL: "true",
        temporary_confs.OPEN_COST: str(temporary_confs.OPEN_BYTES),
    }
