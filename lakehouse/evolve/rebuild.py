"""Rebuilds a table: writes all its rows again, and replaces them in one commit.

1. Take the table's lock. Delete the staged rows of a killed rebuild.
2. Read the log at its newest version V. For a rebuild from own rows, read the rows once to count
   the values that a cast would change, and to sum a hash of every row. Make the plan. A dry run
   ends here.
3. Copy the log of V next to the table (`staged_rows`). Replace rows, columns and partitioning of
   this copy in one overwrite: either with the rows of V under the new columns, or with the
   transform of all inputs at their newest versions. The commit records V, whether the rows are the
   same and, for a rebuild from inputs, the consumed versions.
4. Check the staged rows: own rows against the sums of step 2. Rows from inputs may not be empty,
   unless the inputs or the table are.
5. Copy the staged files into the table, and create the staged versions in its log: V + 1 and, if
   commits without rows come first, the ones after it, up to the overwrite. Each is created only if
   it does not exist.
6. Apply properties and clustering again, and delete the staged rows.

**Safety properties** (tests in `test_rebuild.py`)
- Readers see the old or the new rows, also after a run was killed. The next run starts again.
- A rebuild loses no row of another writer, and brings no archived row back: it commits only after
  the version that it read. If another writer committed first, it ends without a change.
- A rebuild from own rows changes values only by casts that are exact for every row: the staged
  rows, cast back to the earlier types, must equal the rows of version V.
- Nothing is loaded or consumed twice: an overwrite keeps all transaction ids, and the commit with
  the rows also records the version of the first input from which they were computed.
- Only staged rows are deleted. Files of earlier versions stay for time travel.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from lakehouse.base.errors import Refused, Transient
from lakehouse.base.reasons import Reason
from lakehouse.declare.table import Table
from lakehouse.declare.write_modes import Append, Merge, Overwrite
from lakehouse.delta.commits import REBUILD, is_news
from lakehouse.delta.log import TableFacts, history_since, newest_first
from lakehouse.delta.snapshot import Snapshot
from lakehouse.evolve.compare import compare_with_spark
from lakehouse.evolve.plan.rebuild import (
    DownstreamReader,
    RebuildFacts,
    RebuildOutcome,
    RebuildPlan,
    RebuildRequest,
    RebuildSource,
    declared_sources,
    rebuild_plan,
    refuse_impossible,
)
from lakehouse.evolve.staged_rows import (
    RowSums,
    check_own_rows,
    commit_staged,
    forget_staged,
    rebuilt_rows,
    stage_log,
    sums_of_own_rows,
)
from lakehouse.lake.deltalake_tables import with_due_checkpoint
from lakehouse.lake.lake import Lake, TableSession
from lakehouse.lake.lease import hold
from lakehouse.materialize import plan as derived_increments
from lakehouse.materialize.derive import (
    check_has_columns,
    facts_of_inputs,
    history_since_consumed,
    read_by_increment,
    read_by_overwrite,
    transformed,
    why_archived,
    with_archive,
)
from lakehouse.materialize.plan import KEYS, ReadAll, code_record
from lakehouse.materialize.transform_code import transform_code
from lakehouse.spark import delta_writes, statements
from lakehouse.spark.delta_writes import FrameWrite, Transaction
from lakehouse.spark.errors import translated
from lakehouse.spark.frames import table_at
from lakehouse.spark.temporary_confs import (
    ANSI,
    HASH_MAPS,
    OLD_VERSIONS_REFUSED,
    PARTITIONS_OVERWRITTEN,
    READ_WHOLE,
    SHUFFLED_BEFORE_WRITE,
    confs_to_read,
    session_confs,
    whole_table,
)
from lakehouse.write.commit_rows import (
    apply_properties,
    columns_of,
    needed_features,
    newest_per_key,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRebuild:
    """A planned rebuild, and the facts behind it.

    `sums` are the sums of the table's rows, for a rebuild from own rows. `first` describes how a
    rebuild from inputs reads the first input of an `Append` or `Merge`.
    """

    session: TableSession
    request: RebuildRequest
    facts: TableFacts
    plan: RebuildPlan
    inputs: Mapping[str, TableFacts] = field(default_factory=dict[str, TableFacts])
    first: ReadAll | None = None
    sums: RowSums | None = None

    @property
    def confs(self) -> Mapping[str, str]:
        """Spark's session settings for statements that read the rows."""
        # Derived columns are computed as in a load.
        ansi = {} if self.sums is None else {ANSI: "false"}
        tables_read = self.inputs.values() if self.inputs else [self.facts]
        sizes = [whole_table(facts.snapshot) for facts in tables_read]
        if self.first is not None:
            sizes += self.first.archived
        return {**confs_to_read(sizes), **ansi}


def declared_request(session: TableSession, source: RebuildSource | None) -> RebuildRequest:
    """The rebuild after which a table matches its declaration.

    By default, a landed table is rebuilt from its own rows, and any other table from its inputs.
    """
    table = session.table
    default: RebuildSource = "inputs" if table.source is None else "rows"
    if (source or default) == "inputs":
        return RebuildRequest(table=table, source="inputs")
    with translated():
        declared = compare_with_spark(session)
    if declared is None:
        return RebuildRequest(table=table, source="rows")
    columns = declared_sources(table, columns_of(declared.rows), declared.facts.snapshot)
    return RebuildRequest(table=table, source="rows", columns=columns)


def plan_now(
    session: TableSession, request: RebuildRequest, tables: Iterable[Table]
) -> PlannedRebuild:
    """Plans a rebuild of the newest version. For a rebuild from own rows, reads all rows once.

    Raises:
        Refused: there is no table, its rows were written in another way than declared, or the
            rebuild is impossible, inexact, or too early for an `Append` downstream.
    """
    lake = session.lake
    table = session.table
    facts = lake.facts(table.key)
    if facts is None:
        raise Refused(
            f"rebuild of {table.key}: there is no table yet. Use `lakehouse materialize "
            f"{table.key}` first"
        )
    refuse_impossible(request, facts.snapshot)
    if why := why_archived(lake, facts):
        raise Refused(f"rebuild of {table.key}: {why}")
    readers = tuple(_readers(lake, table, facts, tables))
    if request.source == "inputs":
        inputs = facts_of_inputs(lake, table)
        first = _first_input(lake, table, inputs)
        input_bytes = sum(each.snapshot.size_bytes for each in inputs.values())
        if first is not None:
            input_bytes += sum(size_bytes for _, size_bytes in first.archived)
        rebuild_facts = RebuildFacts(table=facts, readers=readers, input_bytes=input_bytes)
        plan = rebuild_plan(request, rebuild_facts)
        return PlannedRebuild(
            session=session, request=request, facts=facts, plan=plan, inputs=inputs, first=first
        )
    if table.inputs and not isinstance(table.write, Overwrite):
        derived_increments.check_written_alike(table, newest_first(lake.store, facts.history))
    frame = table_at(session.spark, facts.snapshot)
    rebuild_facts = RebuildFacts(table=facts, readers=readers)
    # The first plan supplies the columns. The second one refuses casts that would change values.
    columns = rebuild_plan(request, rebuild_facts).columns
    with session_confs(session.spark, confs_to_read([whole_table(facts.snapshot)])):
        sums = sums_of_own_rows(frame, columns, facts.snapshot)
    plan = rebuild_plan(request, replace(rebuild_facts, inexact=sums.inexact))
    plan = replace(plan, row_count=sums.row_count)
    return PlannedRebuild(session=session, request=request, facts=facts, plan=plan, sums=sums)


def _first_input(lake: Lake, table: Table, inputs: Mapping[str, TableFacts]) -> ReadAll | None:
    """How the first input is read, including its archive; `None` for an `Overwrite`."""
    if isinstance(table.write, Overwrite):
        return None
    first = inputs[table.inputs[0].key]
    version = first.snapshot.version
    explanation = Reason.INPUT_READ_WHOLE.explain(
        table=first.snapshot.table, version=version, why=f"{table.key} is rebuilt"
    )
    return with_archive(lake, first, ReadAll(upto=version, explanation=explanation))


def _readers(
    lake: Lake, table: Table, facts: TableFacts, tables: Iterable[Table]
) -> Iterable[DownstreamReader]:
    """The declared tables that read this table, and whether they wait to read changes of it.

    A table that has consumed none of its versions does not wait.
    """
    for reader in tables:
        if not any(source.key == table.key for source in reader.inputs):
            continue
        waits = False
        reader_facts = lake.facts(reader.key)
        transactions = {} if reader_facts is None else reader_facts.snapshot.transactions
        consumed = derived_increments.consumed_of(facts.snapshot, transactions)
        if consumed is not None:
            history = history_since(lake.store, facts.history, consumed.version)
            waits = any(map(is_news, history.commits))
        yield DownstreamReader(table=reader, waits=waits)


_CONFS = {
    HASH_MAPS: "true",
    OLD_VERSIONS_REFUSED: "false",
    PARTITIONS_OVERWRITTEN: "static",
    **READ_WHOLE,
}


def plan_rebuild(
    session: TableSession, request: RebuildRequest, tables: Iterable[Table] = ()
) -> RebuildPlan:
    """The plan of a rebuild of the newest version. Nothing is written.

    `tables` are all declared tables.

    Raises:
        Refused: there is no table, or the rebuild could not be exact.
    """
    with session_confs(session.spark, _CONFS), translated():
        return plan_now(session, request, tables).plan


def run_rebuild(
    session: TableSession,
    request: RebuildRequest,
    tables: Iterable[Table] = (),
    *,
    tell: Callable[[str], None] = lambda _: None,
) -> RebuildOutcome:
    """Rebuilds a table. `tables` are all declared tables; `tell` is called before each long step.

    Raises:
        Refused: there is no table, or the rebuild could not be exact.
        Transient: another process holds the table's lock, or another writer committed first.
        Broken: the staged rows are wrong.
    """
    lake = session.lake
    spark = session.spark
    key = session.key
    started = time.monotonic()
    facts_of_request = lake.facts(key)
    with (
        hold(lake, spark, key, owner=f"rebuild of {key}"),
        translated(),
        session_confs(spark, _CONFS),
    ):
        forget_staged(lake, key)
        tell(f"{key}: reading the rows")
        rebuild = plan_now(session, request, tables)
        _refuse_other_columns(request, facts_of_request, rebuild.facts)
        tell(f"{key}: {rebuild.plan.sentence}")
        mark = uuid4().hex
        snapshot = rebuild.facts.snapshot
        with session_confs(spark, rebuild.confs):
            staged = stage_log(lake, snapshot)
            uri = lake.settings.table_uri(staged)
            _replace_rows(rebuild, uri, mark)
            tell(f"{key}: comparing the rows that were written next to the table")
            row_count = _check_staged(rebuild, spark.read.format("delta").load(uri))
        tell(f"{key}: replacing the table's rows")
        commit_staged(lake, snapshot, staged, mark)
        after = _facts_since(lake, snapshot)
        [commit] = after.history.marked(mark)
        facts = apply_properties(lake, spark, session.table, after)
        forget_staged(lake, key)
    return RebuildOutcome(
        plan=rebuild.plan,
        version_after=commit.version,
        row_count=row_count,
        bytes_written=commit.added_bytes,
        seconds=time.monotonic() - started,
        facts=after if facts is None else facts,
    )


def _refuse_other_columns(
    request: RebuildRequest, before: TableFacts | None, after: TableFacts
) -> None:
    """Refuses the request if another run changed the columns while this run waited for the lock.

    Otherwise, a column that the other run added would be dropped.
    """
    if not request.columns or before is None:
        return
    if before.snapshot.columns != after.snapshot.columns:
        raise Transient(
            f"rebuild of {after.snapshot.table}: another run changed its columns meanwhile. Try "
            "again"
        )


def _facts_since(lake: Lake, snapshot: Snapshot) -> TableFacts:
    """The table's facts now, with every commit after `snapshot`, and with a due checkpoint."""
    facts = lake.facts(snapshot.table)
    assert facts is not None
    facts = with_due_checkpoint(lake, facts)
    return replace(facts, history=history_since(lake.store, facts.history, snapshot.version))


def _rows(rebuild: PlannedRebuild) -> "DataFrame":
    """The rows that replace the table's rows."""
    session = rebuild.session
    table = rebuild.session.table
    snapshot = rebuild.facts.snapshot
    if rebuild.request.source == "rows":
        frame = table_at(session.spark, snapshot)
        return rebuilt_rows(frame, rebuild.plan.columns, snapshot)
    rows = transformed(session, rebuild.inputs, rebuild.first)
    check_has_columns(table, rows)
    if isinstance(table.write, Merge):
        return newest_per_key(rows, table.write)
    return rows


def _check_staged(rebuild: PlannedRebuild, staged: "DataFrame") -> int:
    """Step 4: checks the staged rows. Returns their number.

    Raises:
        Broken: the rows of a rebuild from own rows have changed.
        Refused: the transform returns no rows, although the inputs and the table have rows.
    """
    if rebuild.sums is not None:
        check_own_rows(staged, rebuild.plan.columns, rebuild.facts.snapshot, rebuild.sums)
        return rebuild.sums.row_count
    first = rebuild.inputs[rebuild.session.table.inputs[0].key].snapshot
    may_be_empty = not first.file_count or not rebuild.facts.snapshot.file_count
    row_count = staged.count()
    if not row_count and not may_be_empty:
        raise Refused(
            f"rebuild of {rebuild.session.key}: its transform returns no rows, but its inputs have "
            "rows. The table was not changed. Correct the transform"
        )
    return row_count


def _replace_rows(rebuild: PlannedRebuild, uri: str, mark: str) -> None:
    """Step 3: replaces rows, columns and partitioning of the staged table at `uri` in one commit.

    Commits without rows come first, if the table needs other features or must lose its clustering.
    """
    session = rebuild.session
    plan = rebuild.plan
    snapshot = rebuild.facts.snapshot
    rows = _rows(rebuild)
    transaction, record_of_inputs = _record(rebuild)
    record = {
        "from": snapshot.version,
        "rows": plan.rows,
        "mark": mark,
        "seconds": round(plan.seconds, 3),
        "usd": round(plan.usd, 9),
    }
    write = FrameWrite(
        mode="overwrite",
        replaces_schema=True,
        transaction=transaction,
        partition_by=plan.partition_by,
        user_metadata=json.dumps({REBUILD: record, **record_of_inputs}, separators=(",", ":")),
    )
    # Delta does not allow a table to be both clustered and partitioned.
    if snapshot.clustering_columns and plan.partition_by:
        session.spark.sql(statements.cluster_by(uri, ()))
    column_features = needed_features(columns_of(rows), snapshot)
    if column_features:
        session.spark.sql(statements.set_properties(uri, column_features))
    # A shuffle before the write gives few large files, also for many partitions.
    with session_confs(session.spark, {SHUFFLED_BEFORE_WRITE: "true"}):
        delta_writes.write_frame(rows, uri, write)


def _record(rebuild: PlannedRebuild) -> tuple[Transaction | None, dict[str, Any]]:
    """The transaction id of the consumed version, and what the commit records about inputs.

    There is no transaction id for a version that was consumed before, because Delta silently skips
    a write with a version that is not newer than the recorded version.
    """
    session = rebuild.session
    table = rebuild.session.table
    is_incremental = isinstance(table.write, Append | Merge) and bool(table.inputs)
    if rebuild.request.source == "rows":
        return None, {KEYS: derived_increments.merge_keys(table)} if is_incremental else {}
    code = code_record(transform_code(table))
    if not is_incremental:
        return None, {**read_by_overwrite(rebuild.inputs), **code}
    first = rebuild.inputs[table.inputs[0].key]
    version = first.snapshot.version
    record = {**read_by_increment(table, first, version), **code}
    consumed = derived_increments.consumed_of(first.snapshot, rebuild.facts.snapshot.transactions)
    if consumed is not None and consumed.version >= version:
        history_since_consumed(session.lake, table, first, rebuild.facts, consumed)
        return None, record
    app_id = derived_increments.consume_app_id(first.snapshot)
    return Transaction(app_id=app_id, version=version), record
