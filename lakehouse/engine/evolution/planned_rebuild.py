"""Reads the facts of a rebuild, and plans it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from lakehouse.core.declaration.table import Table
from lakehouse.core.declaration.write_modes import Overwrite
from lakehouse.core.delta.commits import is_news
from lakehouse.core.errors import Refused
from lakehouse.core.evolution.column_sources import declared_sources
from lakehouse.core.evolution.rebuild import (
    DownstreamReader,
    RebuildFacts,
    RebuildPlan,
    RebuildRequest,
    RebuildSource,
    rebuild_plan,
    refuse_impossible,
)
from lakehouse.core.ingest import derived_increments
from lakehouse.core.ingest.derived_increments import ReadAll
from lakehouse.core.reasons import Reason
from lakehouse.engine.delta_log import TableFacts, history_since, newest_first
from lakehouse.engine.evolution.compare import compare_with_spark
from lakehouse.engine.evolution.staged_rows import RowSums, sums_of_own_rows
from lakehouse.engine.ingest.commit_rows import columns_of
from lakehouse.engine.ingest.derive import facts_of_inputs
from lakehouse.engine.ingest.derived_inputs import why_archived, with_archive
from lakehouse.engine.ingest.work_size import confs_to_read, whole_table
from lakehouse.engine.lake import Lake, TableSession
from lakehouse.engine.spark.errors import translated
from lakehouse.engine.spark.frames import table_at
from lakehouse.engine.spark.temporary_confs import ANSI, session_confs


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
