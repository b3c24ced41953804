"""Plans and makes the changes by which a table follows its declaration (`lakehouse evolve`).

`propose` makes the plan. `apply_changes` has these steps:

1. Compare the declaration with the table.
2. Rebuild the table (`evolve.rebuild`). If no rebuild is needed, add columns and set
   descriptions under the table's lock, as a write would.
3. Compare again. If a difference remains that stops writes, raise `Broken`.

**Safety properties** (tests in `test_run.py`)
- A change that no command can apply is refused before anything is changed.
- A column is dropped only if it is not declared, and a person names it in the command. Exceptions:
  a rebuild from inputs and a rebuild of an `Overwrite` keep only declared columns.
- After a crash at any point, the same command continues, because it compares the declaration with
  the table's existing columns again.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lakehouse.base.errors import Broken, Refused
from lakehouse.base.frozen import frozen
from lakehouse.declare.table import Table
from lakehouse.delta.snapshot import TableFacts
from lakehouse.evolve.compare import changes_of_rows
from lakehouse.evolve.plan.changes import EvolutionPlan, Kind, Way, compare
from lakehouse.evolve.plan.rebuild import (
    EvolutionOutcome,
    Proposal,
    RebuildRequest,
    declared_sources,
)
from lakehouse.evolve.rebuild import plan_rebuild, rebuilt_rows, run_rebuild
from lakehouse.lake.lake import TableSession
from lakehouse.lake.lease import hold
from lakehouse.land.ledger import planned_batches
from lakehouse.land.plan.records import columns_in_force, with_renamed_fields
from lakehouse.land.run import no_rows
from lakehouse.materialize.run import facts_of_inputs, transformed
from lakehouse.spark.errors import first_line, translated
from lakehouse.spark.frames import table_at
from lakehouse.write.commit_rows import columns_of, safe_statements

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@frozen
class DeclaredTable:
    """A table's facts, the plan of its changes, and a frame (`rows`) with the declared columns.

    Only the schema of `rows` is used.
    """

    facts: TableFacts
    rows: "DataFrame"
    plan: EvolutionPlan


@translated()
def compare_with_spark(session: TableSession, *, after_inputs: bool = False) -> DeclaredTable:
    """The table and all changes of its declaration.

    With `after_inputs`, a function is analyzed against its inputs as they will be once they follow
    their own declarations.

    Raises:
        Refused: there is no table yet, other programs write it, an input does not exist, Spark
            refuses the function or an expression, or the declaration no longer has a schema.
    """
    from pyspark.errors import AnalysisException
    from pyspark.logger import PySparkLogger

    lake = session.lake
    table = session.table
    if table.adopted:
        raise Refused(
            f"evolve {table.key}: other programs write it, at {table.adopted.uri}, and change its"
            " columns. Use their tools"
        )
    facts = lake.existing_facts(table.key, "evolve:")
    # PySpark would also log such an error with its Java stack. The message below is enough.
    PySparkLogger.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL)
    try:
        rows = declared_rows(session, facts, after_inputs=after_inputs)
        columns = columns_of(rows)
    except AnalysisException as error:
        reason = first_line(error).rstrip(" ;.")
        advice = "Correct the expressions of its declaration"
        if table.inputs:
            advice = "Correct the function"
            if not after_inputs:
                inputs = " ".join(source.key for source in table.inputs)
                advice = (
                    f"Use `lakehouse evolve {inputs} --dry-run` to see whether an input waits for "
                    "a change. If no input does, correct the function"
                )
        raise Refused(
            f"evolve {table.key}: Spark cannot analyze its columns: {reason}. {advice}"
        ) from error
    plan = compare(table, columns, facts.snapshot, changes_of_rows(lake, table, facts))
    return DeclaredTable(facts=facts, rows=rows, plan=plan)


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
        return transformed(session, facts_of_inputs(session.lake, session.table))
    ledger = planned_batches(session.lake, session.table).ledger()
    table = with_renamed_fields(session.table)
    added = columns_in_force(ledger.columns, table.landing)
    return no_rows(replace(session, table=table), added, facts)


def _as_declared(session: TableSession) -> "DataFrame":
    """A frame with the columns that a table will have once it follows its declaration."""
    table = session.table
    facts = session.lake.existing_facts(table.key, "its input")
    rows = table_at(session.spark, facts.snapshot)
    if table.adopted:
        return rows
    declared = declared_rows(session, facts, after_inputs=True)
    if table.is_overwrite:
        return declared
    sources = declared_sources(table, columns_of(declared), facts.snapshot)
    return rebuilt_rows(rows, sources)


def propose(
    session: TableSession, tables: Sequence[Table], *, drop: Sequence[str] = ()
) -> Proposal:
    """What `apply_changes` would do to one table.

    Raises:
        Refused: as `compare_with_spark`, a column to drop is declared or unknown, or a rebuild is
            refused.
    """
    declared = compare_with_spark(session, after_inputs=True)
    plan = declared.plan
    _check_drops(declared, drop)
    rebuild = None
    needed = None if plan.impossible else rebuild_request(session.table, declared, drop=drop)
    if needed is not None:
        rebuild = plan_rebuild(session, needed, tables).plan
    to_fill = [each.name for each in plan.added]
    source = session.table.source
    if source is not None:
        to_fill = [name for name in to_fill if name in source.derived]
    return Proposal(plan=plan, rebuild=rebuild, to_fill=tuple(to_fill))


def rebuild_request(
    table: Table, declared: DeclaredTable, *, drop: Sequence[str] = ()
) -> RebuildRequest | None:
    """The rebuild after which the table matches its declaration; `None` if none is needed."""
    plan = declared.plan
    way = plan.rebuild_from or (Way.OWN_ROWS if drop else None)
    # With `evolution="refuse"`, the next `Overwrite` must not replace the columns: a rebuild does.
    if plan.of(Kind.REPLACED) and plan.policy == "refuse":
        way = Way.OWN_ROWS if table.source is not None else Way.INPUTS
    if way is None:
        return None
    if way is Way.INPUTS:
        return RebuildRequest(table=table)
    return _from_own_rows(table, declared, drop)


def _from_own_rows(
    table: Table, declared: DeclaredTable, drop: Sequence[str] = ()
) -> RebuildRequest:
    existing = declared.facts.snapshot.columns
    sources = declared_sources(table, columns_of(declared.rows), declared.facts.snapshot)
    columns = tuple(each for each in sources if each.column.name not in drop)
    return RebuildRequest(table=table, columns=columns, existing=existing)


def declared_request(session: TableSession) -> RebuildRequest:
    """The rebuild after which a table matches its declaration.

    A landed table is rebuilt from its own rows, and any other table from its inputs.
    """
    table = session.table
    if table.source is None:
        return RebuildRequest(table=table)
    return _from_own_rows(table, compare_with_spark(session))


def apply_changes(
    session: TableSession,
    tables: Sequence[Table],
    tell: Callable[[str], None],
    *,
    drop: Sequence[str] = (),
) -> EvolutionOutcome:
    """Applies all changes that are safe or requested; `drop` names columns to drop.

    `tables` are all declared tables, some of which may read this one.

    Raises:
        Refused: a change is not possible, a column to drop is declared or unknown, or a rebuild is
            refused.
        Transient: another process holds a lock, or another writer commits during a rebuild.
        Broken: a rebuild fails its checks, or the table still differs from its declaration
            afterwards.
    """
    key = session.key
    declared = compare_with_spark(session)
    if declared.plan.impossible:
        raise Refused(f"evolve {key}: {declared.plan.sentence}. {declared.plan.advice}")
    _check_drops(declared, drop)
    outcome = None
    rebuild = rebuild_request(session.table, declared, drop=drop)
    if rebuild is not None:
        outcome = run_rebuild(session, rebuild, tables, tell=tell)
        sentences = [outcome.sentence]
    else:
        sentences = _change_safely(session, declared)
    left = compare_with_spark(session).plan
    if left.blocking:
        raise Broken(
            f"evolve {key}: all changes were applied, but the table still differs from its "
            f"declaration: {left.sentence}. Use `lakehouse history {key}` to look for commits of "
            "other programs"
        )
    if not sentences:
        sentences.append(f"nothing to apply: {left.sentence}")
        if left.of(Kind.CODE_CHANGED):
            sentences.append(f"Use `lakehouse rebuild {key}` to compute its rows again")
    return EvolutionOutcome(sentences=tuple(sentences), left=left, rebuild=outcome)


def _check_drops(declared: DeclaredTable, drop: Sequence[str]) -> None:
    """Raises `Refused` unless each column to drop is in the table and not declared."""
    plan = declared.plan
    snapshot = declared.facts.snapshot
    undeclared = {change.before for change in plan.of(Kind.COLUMN_LEFT)}
    replaced = {change.before for change in plan.of(Kind.REPLACED)}
    existing = {column.name for column in snapshot.columns}
    for name in drop:
        if name in undeclared:
            continue
        if name in snapshot.partition_columns:
            reason = "the table is partitioned by it. Declare another partitioning first"
        elif name in replaced:
            reason = "the next write replaces all rows and columns. Use `lakehouse materialize`"
        elif name in existing:
            reason = "it is declared. Remove it from the declaration first"
        elif undeclared:
            names = ", ".join(sorted(map(str, undeclared)))
            reason = f"the table has no such column. Use one of {names}"
        else:
            reason = "the table has no such column"
        raise Refused(f"evolve {plan.table}: --drop {name}: {reason}")


def _change_safely(session: TableSession, declared: DeclaredTable) -> list[str]:
    """Adds columns and sets descriptions, as a write would. Returns sentences about the changes."""
    plan = declared.plan
    owner = f"evolve of {session.key}"
    with hold(session.lake, session.spark, session.key, owner=owner), translated():
        for statement in safe_statements(plan, declared.facts.snapshot, declared.rows):
            session.spark.sql(statement)
    sentences = list[str]()
    if plan.added:
        sentences.append(f"added {', '.join(each.name for each in plan.added)}")
    if plan.of(Kind.COMMENT_CHANGED):
        sentences.append("set descriptions of columns")
    return sentences


def apply_policy(
    session: TableSession, tables: Sequence[Table], tell: Callable[[str], None]
) -> tuple[str, ...]:
    """Applies the changes that `evolution="automatic"` allows, before a write.

    Returns a sentence for each change. If the table also needs a change that only a person can
    request, nothing is applied here, and the write that follows is refused.
    """
    if session.table.evolution != "automatic" or session.lake.facts(session.key) is None:
        return ()
    plan = compare_with_spark(session).plan
    if plan.stopping or not plan.blocking:
        return ()
    return apply_changes(session, tables, tell).sentences
