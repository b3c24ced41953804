"""Reads a table with its archive, and brings archived partitions back to the table.

1. Versions of the archive that the table does not name are taken back (`archive.py`, step 1).
2. One commit removes the partitions from the archive. The table does not name its version yet.
3. One append writes their rows to the table, and names that version as its transaction id.

**Safety properties** (tests in `test_archive.py`)
- A reader takes the archive at the version that the table's log names, so each row is read once.
- Between steps 2 and 3 the rows are in the archive for every reader. A run that dies there is taken
  back by the next one, and its append can then not commit: Delta skips a transaction id that is not
  newer than the table's.
- A missing file is an error, whatever the session's settings are.
"""

import json
import time
from typing import TYPE_CHECKING

from lakehouse.base.errors import Broken, Refused, Transient
from lakehouse.base.installation import project_settings
from lakehouse.base.operation import Figure
from lakehouse.compact.verify import verify_left
from lakehouse.declare.table import Table
from lakehouse.delta.commits import ARCHIVE_APP_ID, ROWS_MOVED
from lakehouse.delta.snapshot import TableFacts
from lakehouse.lake.declared_tables import declared_tables
from lakehouse.lake.lake import Lake, TableSession, open_lake
from lakehouse.lake.lease import hold
from lakehouse.retain.plan.archive import (
    RestorePlan,
    Selection,
    names_in_archive,
    plan_restore,
    refuse_table,
    sizes_of,
)
from lakehouse.retain.run.archive import (
    ArchiveState,
    RetentionOutcome,
    commit_to_archive,
    read_state,
    record_moved_rows,
    settled_state,
    written_by,
)
from lakehouse.spark import functions as F  # noqa: N812
from lakehouse.spark import statements
from lakehouse.spark.errors import translated
from lakehouse.spark.frames import FrameWrite, Transaction, table_at, with_columns_of, write_frame
from lakehouse.spark.session import connect
from lakehouse.spark.temporary_confs import SHUFFLED_BEFORE_WRITE, session_confs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read(
    table: Table | str, *, spark: "SparkSession | None" = None, with_archive: bool = False
) -> "DataFrame":
    """The rows of a declared table at its newest version.

    `table` is a key or a declaration. With `with_archive`, the rows of its archive are included.
    The LAKEHOUSE_ variables of the environment name the lake. `spark` is a session with Delta; the
    default is a session of the Spark that LAKEHOUSE_SPARK names.

    Raises:
        Refused: the table is not declared, or does not exist yet.
        Broken: the archive and the table's log contradict each other.
        Transient: no Spark server is running.
    """
    settings = project_settings()
    declared = declared_tables(settings)
    if isinstance(table, str):
        if table not in declared:
            known = ", ".join(declared) or "none"
            raise Refused(f"read: table {table!r} is not declared. Use one of: {known}")
        table = declared[table]
    lake = open_lake(settings, tables=[*declared.values(), table])
    session = TableSession(lake=lake, spark=spark or connect(settings), table=table)
    facts = lake.existing_facts(table.key)
    rows = table_at(session.spark, facts.snapshot)
    archived = archived_rows(session, facts) if with_archive else None
    return rows if archived is None else rows.unionByName(archived)


def archived_rows(session: TableSession, facts: TableFacts) -> "DataFrame | None":
    """The rows of a table's archive at a version of the table; `None` if the archive is empty.

    They have the table's columns.

    Raises:
        Refused: a column changed since the last run of the archive.
    """
    state = read_state(session.lake, session.key, facts)
    if not state.applied.files:
        return None
    snapshot, archived = facts.snapshot, state.applied
    refuse_table(snapshot)
    names = names_in_archive(snapshot, archived)
    present = [F.col(statements.quote(stored)).alias(name) for name, stored in names.items()]
    rows = table_at(session.spark, archived).select(*present)
    return with_columns_of(session.spark, snapshot, rows)


def restore_plan(
    lake: Lake,
    table: Table,
    chosen: Selection = (),
    state: ArchiveState | None = None,
) -> RestorePlan:
    """Plans a restore. Nothing is written, and Spark is not needed.

    Without `state`, the logs of the table and of its archive are read.

    Raises:
        Refused: as `read_state` and `plan_restore`.
    """
    state = state or read_state(lake, table.key)
    written = written_by(lake, state)
    return plan_restore(table, state.facts.snapshot, state.applied, chosen, written)


def run_restore(session: TableSession, chosen: Selection = ()) -> RetentionOutcome:
    """Restores partitions. Raises as `restore_plan`, and:

    Raises:
        Refused: a column changed its type.
        Transient: another process holds the table, or another run committed first.
        Broken: as `read_state`, or a file does not have its recorded number of rows.
    """
    lake, table = session.lake, session.table
    started = time.monotonic()
    with (
        translated(table.key, operation="restore"),
        # The shuffle leads to few large files in each partition.
        session_confs(session.spark, {SHUFFLED_BEFORE_WRITE: "true"}),
        hold(lake, None, table.key, owner=f"restore of {table.key}"),
    ):
        verify_left(lake, lambda: session.spark, table.key)
        state = settled_state(lake, table.key)
        plan = restore_plan(lake, table, chosen, state)
        version = _restore(session, state, plan) if plan.partitions else None
    outcome = RetentionOutcome(
        plan=plan,
        version_after=version,
        figures=(Figure("seconds", None, time.monotonic() - started),),
    )
    record_moved_rows(lake, table, "restore", outcome)
    return outcome


def _restore(session: TableSession, state: ArchiveState, plan: RestorePlan) -> int:
    """Steps 2 and 3; returns the version that has the rows."""
    snapshot = state.facts.snapshot
    archived = archived_rows(session, state.facts)
    assert archived is not None  # it has the partitions
    values = [each.values for each in plan.partitions]
    rows = archived.where(statements.partition_predicate(snapshot.columns, values))
    expected = sizes_of(plan.partitions).rows
    if expected is not None and (actual := rows.count()) != expected:
        raise Broken(
            f"restore of {plan.table}: the archived files have {actual:,} rows, but the archive's"
            f" log says {expected:,}. Nothing was written. Check archive/{plan.table}"
        )
    number = commit_to_archive(session.lake, state, restored=plan.partitions)
    write = FrameWrite(
        mode="append",
        transaction=Transaction(app_id=ARCHIVE_APP_ID, version=number),
        user_metadata=json.dumps({ROWS_MOVED: "restore"}),
    )
    write_frame(rows, snapshot.uri, write)
    after = session.lake.existing_facts(session.key)
    for commit in session.lake.history_since(after, plan.version).commits:
        if commit.applications.get(ARCHIVE_APP_ID) == number and commit.added_paths:
            return commit.version
    raise Transient(
        f"restore of {plan.table}: another run took it back before its rows were written."
        " Nothing is lost. Use the same command again"
    )
