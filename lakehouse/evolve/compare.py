"""Compares a table with its declaration, either with Spark or, less exactly, without Spark."""

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakehouse.base.errors import Refused
from lakehouse.base.reasons import Reason
from lakehouse.declare.table import Table
from lakehouse.declare.write_modes import Adopted, Overwrite
from lakehouse.delta.log import TableFacts, newest_first
from lakehouse.delta.snapshot import Column
from lakehouse.evolve.plan.changes import EvolutionPlan, WrittenRows, compare
from lakehouse.evolve.plan.rebuild import columns_without_spark, declared_sources
from lakehouse.lake.lake import Lake, TableSession
from lakehouse.land.ledger import PlannedBatches
from lakehouse.land.plan.records import columns_in_force, with_renamed_fields
from lakehouse.materialize import plan as derived_increments
from lakehouse.materialize.plan import code_changed_since, recorded_code
from lakehouse.materialize.transform_code import transform_code
from lakehouse.write.outcome import WriteOutcome

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredTable:
    """A table's facts, the plan of its changes, and a frame (`rows`) with the declared columns.

    Only the schema of `rows` is used.
    """

    facts: TableFacts
    rows: "DataFrame"
    plan: EvolutionPlan


def refuse_adopted(table: Table, *, asked: str) -> None:
    """Refuses a table that other programs write, since they also change its columns."""
    if isinstance(table.write, Adopted):
        raise Refused(
            f"{asked} {table.key}: other programs write it, at {table.write.uri}, and change its"
            " columns. Use their tools"
        )


def compare_without_spark(lake: Lake, table: Table, facts: TableFacts) -> EvolutionPlan:
    """The changes that are visible without Spark: in the log, the ledger and the declaration.

    Without Spark, the columns of a function and the types of derived columns are unknown.
    """
    added = list[str]()
    if table.source is not None:
        ledger = PlannedBatches(lake.store, table.key, prefix=table.source.prefix).ledger()
        added_columns = columns_in_force(ledger.columns, table.source)
        # If an added column was renamed, the declaration has its new name.
        added = [name for name in added_columns if name not in table.renamed]
    columns = columns_without_spark(table, facts.snapshot, added)
    return compare(table, columns, facts.snapshot, written_rows(lake, table, facts))


def with_waiting_change(lake: Lake, table: Table, outcome: WriteOutcome) -> WriteOutcome:
    """The outcome. If nothing was written, its sentence names the changes that wait."""
    is_idle = outcome.reason in (Reason.NOTHING_LANDED, Reason.INPUTS_UNCHANGED)
    if outcome.facts is None or not is_idle:
        return outcome
    plan = compare_without_spark(lake, table, outcome.facts)
    if not plan.blocking:
        return outcome
    changes = "; ".join(change.sentence for change in plan.blocking)
    more = f"{outcome.explanation.more}; a change of its declaration waits: {changes}. "
    more += plan.advice.removesuffix(".")
    return replace(outcome, explanation=replace(outcome.explanation, more=more))


def compare_with_spark(
    session: TableSession, *, after_inputs: bool = False
) -> DeclaredTable | None:
    """The table and all changes of its declaration; `None` if there is no table yet.

    With `after_inputs`, a function is analyzed against its inputs as they will be once they follow
    their own declarations.

    Raises:
        Refused: other programs write the table, an input does not exist, Spark refuses the function
            or an expression, or the declaration no longer has a schema.
    """
    lake = session.lake
    table = session.table
    refuse_adopted(table, asked="evolve")
    facts = lake.facts(table.key)
    if facts is None:
        return None
    rows, columns = _declared_columns(session, facts, after_inputs=after_inputs)
    plan = compare(table, columns, facts.snapshot, written_rows(lake, table, facts))
    return DeclaredTable(facts=facts, rows=rows, plan=plan)


def written_rows(lake: Lake, table: Table, facts: TableFacts) -> WrittenRows:
    """What a derived table's log records about its rows. For a landed table, nothing is known."""
    if table.source is not None:
        return WrittenRows()
    history = facts.history
    recorded = recorded_code(newest_first(lake.store, history))
    code_since = code_changed_since(recorded, transform_code(table))
    if isinstance(table.write, Overwrite):
        return WrittenRows(code_since=code_since)
    other = derived_increments.other_way(table, newest_first(lake.store, history))
    way = None if other is None else other[0]
    return WrittenRows(
        way=way,
        declared_way=derived_increments.declared_way(table),
        code_since=code_since,
    )


def _declared_columns(
    session: TableSession, facts: TableFacts, *, after_inputs: bool
) -> tuple["DataFrame", tuple[Column, ...]]:
    from pyspark.errors import AnalysisException
    from pyspark.logger import PySparkLogger

    from lakehouse.spark.errors import first_line
    from lakehouse.write.commit_rows import columns_of

    # PySpark would also log such an error with its Java stack. The message below is enough.
    PySparkLogger.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL)
    try:
        rows = declared_rows(session, facts, after_inputs=after_inputs)
        return rows, columns_of(rows)
    except AnalysisException as error:
        reason = first_line(error).rstrip(" ;.")
        advice = "Correct the expressions of its declaration"
        if session.table.inputs:
            advice = "Correct the function"
            if not after_inputs:
                inputs = " ".join(source.key for source in session.table.inputs)
                advice = (
                    f"Use `lakehouse evolve {inputs} --dry-run` to see whether an input waits for "
                    "a change. If no input does, correct the function"
                )
        raise Refused(
            f"evolve {session.key}: Spark cannot analyze its columns: {reason}. {advice}"
        ) from error


def declared_rows(
    session: TableSession, facts: TableFacts, *, after_inputs: bool = False
) -> "DataFrame":
    """A frame with the declared columns. Only its schema is used."""
    table = session.table
    if table.source is None and after_inputs:
        frames = {each.name: _as_declared(replace(session, table=each)) for each in table.inputs}
        assert table.transform is not None
        return table.transform(**frames)
    if table.source is None:
        from lakehouse.materialize.derive import facts_of_inputs, transformed

        return transformed(session, facts_of_inputs(session.lake, session.table))
    from lakehouse.land.rows import no_rows

    landing = session.table.landing
    ledger = PlannedBatches(session.lake.store, session.key, prefix=landing.prefix).ledger()
    table = with_renamed_fields(session.table)
    added = columns_in_force(ledger.columns, table.landing)
    return no_rows(replace(session, table=table), added, facts)


def _as_declared(session: TableSession) -> "DataFrame":
    """A frame with the columns that a table will have once it follows its declaration."""
    from lakehouse.evolve.staged_rows import rebuilt_rows
    from lakehouse.spark.frames import table_at
    from lakehouse.write.commit_rows import columns_of

    table = session.table
    facts = session.lake.facts(table.key)
    if facts is None:
        raise Refused(
            f"its input {table.key} has no table yet. Use `lakehouse materialize {table.key}` first"
        )
    rows = table_at(session.spark, facts.snapshot)
    if isinstance(table.write, Adopted):
        return rows
    declared = declared_rows(session, facts, after_inputs=True)
    if isinstance(table.write, Overwrite):
        return declared
    sources = declared_sources(table, columns_of(declared), facts.snapshot)
    return rebuilt_rows(rows, sources, facts.snapshot)
