"""Proposes how to apply a changed declaration: the changes, the rebuild, and its cost."""

from collections.abc import Sequence

from lakehouse.core.declaration.table import Table
from lakehouse.core.declaration.write_modes import Overwrite
from lakehouse.core.errors import Refused
from lakehouse.core.evolution.column_sources import declared_sources
from lakehouse.core.evolution.in_place import in_place_changes
from lakehouse.core.evolution.plan import EvolutionPlan, Kind, Way
from lakehouse.core.evolution.proposal import Proposal
from lakehouse.core.evolution.rebuild import RebuildRequest
from lakehouse.engine.evolution.compare import (
    DeclaredTable,
    compare_with_spark,
    refuse_adopted,
)
from lakehouse.engine.evolution.rebuild import plan_rebuild
from lakehouse.engine.ingest.commit_rows import columns_of
from lakehouse.engine.lake import TableSession
from lakehouse.engine.spark.errors import translated


def propose(session: TableSession, tables: Sequence[Table]) -> Proposal:
    """The proposal for one table. `tables` are all declared tables, including its readers.

    Raises:
        Refused: other programs write the table, or an input does not exist.
    """
    refuse_adopted(session.table, asked="evolve")
    with translated():
        declared = compare_with_spark(session, after_inputs=True)
    if declared is None:
        return Proposal(table=session.key)
    plan = declared.plan
    snapshot = declared.facts.snapshot
    rebuild = None
    why_no_rebuild = ""
    request = None if plan.impossible else rebuild_request(session.table, declared)
    if request is not None:
        try:
            rebuild = plan_rebuild(session, request, tables)
        except Refused as error:
            why_no_rebuild = str(error)
    return Proposal(
        table=session.key,
        plan=plan,
        rebuild=rebuild,
        why_no_rebuild=why_no_rebuild,
        in_place=in_place_changes(plan, snapshot, is_asked=True),
        to_fill=_to_fill(session.table, plan),
    )


def _to_fill(table: Table, plan: EvolutionPlan) -> tuple[str, ...]:
    """The added columns whose values a rebuild computes for existing rows."""
    names = [each.name for each in plan.added]
    if table.source is None:
        return tuple(names)
    return tuple(name for name in names if name in table.source.derived)


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
        return RebuildRequest(table=table, source="inputs")
    sources = declared_sources(table, columns_of(declared.rows), declared.facts.snapshot)
    columns = tuple(each for each in sources if each.column.name not in drop)
    if isinstance(table.write, Overwrite):  # an Overwrite keeps only declared columns
        names = set(declared.rows.columns)
        columns = tuple(each for each in sources if each.column.name in names)
    return RebuildRequest(table=table, source="rows", columns=columns)
